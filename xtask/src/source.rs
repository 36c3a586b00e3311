//! Rust source as tokens: without comments, strings and what only tests compile. Enough to count and
//! to find paths; nothing is understood beyond that.

/// A source file, cut into tokens.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Words, `::`, and single signs of what production compiles.
    pub(crate) tokens: Vec<String>,
    /// Names of modules in files of their own that only tests compile: `#[cfg(test)] mod NAME;`.
    pub(crate) test_modules: Vec<String>,
    /// Lines in all.
    pub(crate) lines: usize,
    /// Lines that only tests compile.
    pub(crate) test_lines: usize,
}

/// A token and the line it stands on, from 0.
type Token = (String, usize);

impl Source {
    /// Cuts `text`.
    pub(crate) fn of(text: &str) -> Self {
        let all = tokens(text);
        let mut source = Self { lines: text.lines().count(), ..Self::default() };
        let mut at = 0;
        while at < all.len() {
            if !is_test_attribute(&all[at..]) {
                source.tokens.push(all[at].0.clone());
                at += 1;
                continue;
            }
            let end = item_end(&all, at + TEST_ATTRIBUTE.len());
            let item = &all[at..end];
            if let [.., word, name, last] = item
                && (word.0.as_str(), last.0.as_str()) == ("mod", ";")
            {
                source.test_modules.push(name.0.clone());
            }
            if let (Some(first), Some(last)) = (item.first(), item.last()) {
                source.test_lines += last.1 - first.1 + 1;
            }
            at = end;
        }
        source
    }

    /// Functions with a name.
    pub(crate) fn functions(&self) -> usize {
        self.tokens.windows(2).filter(|pair| pair[0] == "fn" && is_word(&pair[1])).count()
    }

    /// `assert!`, `assert_eq!` and `assert_ne!`: those that release builds keep.
    pub(crate) fn asserts(&self) -> usize {
        let is = |pair: &&[String]| {
            pair[1] == "!" && ["assert", "assert_eq", "assert_ne"].contains(&pair[0].as_str())
        };
        self.tokens.windows(2).filter(is).count()
    }
}

const TEST_ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

fn is_test_attribute(tokens: &[Token]) -> bool {
    let found = tokens.iter().take(TEST_ATTRIBUTE.len()).map(|(token, _)| token.as_str());
    found.eq(TEST_ATTRIBUTE)
}

/// Where an item that begins at `at` ends: behind its `;`, or its block.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some((token, _)) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" if depth == 1 => return at,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    at
}

/// Is it a name or a keyword?
pub(crate) fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 0);
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let end = match (c, next) {
            ('/', Some('/')) => until(&chars, at, |rest| rest[0] == '\n'),
            ('/', Some('*')) => until(&chars, at + 2, |rest| rest.starts_with(&['*', '/'])) + 2,
            ('"', _) => quoted(&chars, at),
            ('r', Some('"' | '#')) if raw(&chars, at).is_some() => {
                raw(&chars, at).unwrap_or(at + 1)
            }
            // A character, not a lifetime.
            ('\'', Some('\\')) => until(&chars, at + 3, |rest| rest[0] == '\'') + 1,
            ('\'', _) if chars.get(at + 2) == Some(&'\'') => at + 3,
            (':', Some(':')) => {
                found.push(("::".to_owned(), line));
                at + 2
            }
            _ if c.is_alphanumeric() || c == '_' => {
                let end = until(&chars, at, |rest| !(rest[0].is_alphanumeric() || rest[0] == '_'));
                found.push((chars[at..end].iter().collect(), line));
                end
            }
            _ => {
                if !c.is_whitespace() {
                    found.push((c.to_string(), line));
                }
                at + 1
            }
        }
        .min(chars.len());
        line += chars[at..end].iter().filter(|c| **c == '\n').count();
        at = end;
    }
    found
}

/// The first place from `at` on whose rest is as wanted, or the end.
fn until(chars: &[char], at: usize, wanted: impl Fn(&[char]) -> bool) -> usize {
    (at..chars.len()).find(|at| wanted(&chars[*at..])).unwrap_or(chars.len())
}

/// Behind a string that begins at `at`.
fn quoted(chars: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(c) = chars.get(at) {
        at += match c {
            '"' => return at + 1,
            '\\' => 2,
            _ => 1,
        };
    }
    at
}

/// Behind a raw string that begins at `at`, if one does.
fn raw(chars: &[char], at: usize) -> Option<usize> {
    let signs = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let open = at + 1 + signs;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let close = [vec!['"'], vec!['#'; signs]].concat();
    Some(until(chars, open + 1, |rest| rest.starts_with(&close)) + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_tests_are_left_out() {
        let text = "//! fn no()\nfn one<'a>() { assert!(x, \"fn two() {{\"); '\\'' }\n/* fn no */\n\
            #[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn three() {\n    assert!(r#\"}\"#)\n}\nfn four() {}\n";
        let source = Source::of(text);
        assert_eq!((source.functions(), source.asserts()), (2, 1), "{:?}", source.tokens);
        assert_eq!(source.test_modules, ["tests"]);
        assert_eq!((source.lines, source.test_lines), (10, 6));
    }
}
