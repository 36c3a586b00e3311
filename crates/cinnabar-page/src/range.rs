//! Of which time a view is: a word such as `1h`, or two moments; a link with it reproduces the view.

use cinnabar_config::history::Step;

/// Words, how far they reach back in milliseconds, and how they are shown.
const WORDS: [(&str, u64, &str); 6] = [
    ("5m", 300_000, "5 min"),
    ("15m", 900_000, "15 min"),
    ("1h", 3_600_000, "1 h"),
    ("6h", 21_600_000, "6 h"),
    ("24h", 86_400_000, "24 h"),
    ("all", u64::MAX, "all"),
];
/// What is shown unless something is asked for.
const DEFAULT: usize = 2;

/// A range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its begin, in milliseconds since 1970.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
    /// Which of the words it is; `None`: two moments.
    word: Option<usize>,
}

impl Range {
    /// As a query asks for it.
    ///
    /// # Errors
    /// Says what is wrong, and what would help.
    pub fn read(
        range: Option<&str>,
        from_ms: Option<u64>,
        to_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<Self, (String, String)> {
        let words = || WORDS.map(|(word, ..)| word).join(", ");
        if from_ms.is_some() || to_ms.is_some() {
            let (from_ms, to_ms) = (from_ms.unwrap_or(0), to_ms.unwrap_or(now_ms));
            if from_ms >= to_ms {
                let message = format!("from ({from_ms}) is not before to ({to_ms})");
                return Err((message, "both are in milliseconds since 1970".into()));
            }
            return Ok(Self { from_ms, to_ms, word: None });
        }
        let at = match range {
            None => Some(DEFAULT),
            Some(text) => WORDS.iter().position(|(word, ..)| *word == text),
        };
        let at = at.ok_or_else(|| {
            let message = format!("there is no range {:?}", range.unwrap_or_default());
            (message, format!("there are {}; or from=MS&to=MS", words()))
        })?;
        let from_ms = now_ms.saturating_sub(WORDS[at].1);
        Ok(Self { from_ms, to_ms: now_ms, word: Some(at) })
    }

    /// Which samples it is made of: the finest that reach back so far.
    pub fn step(&self, now_ms: u64) -> Step {
        Step::reaching(now_ms.saturating_sub(self.from_ms))
    }

    pub fn query(&self) -> String {
        match self.word {
            Some(at) => format!("range={}", WORDS[at].0),
            None => format!("from={}&to={}", self.from_ms, self.to_ms),
        }
    }

    /// How it is called in a sentence: "in the last hour".
    pub fn words(&self) -> String {
        match self.word.map(|at| WORDS[at]) {
            Some(("1h", ..)) => "in the last hour".into(),
            Some(("all", ..)) => "in all that is kept (a day at most)".into(),
            Some((_, _, shown)) => format!("in the last {shown}"),
            None => "in the range chosen".into(),
        }
    }

    /// All words: what asks for it, how it is shown, whether it is this one.
    pub(crate) fn choices(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        let chosen = self.word;
        WORDS
            .iter()
            .enumerate()
            .map(move |(at, (word, _, shown))| (*word, *shown, chosen == Some(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    #[test]
    fn a_link_reproduces_the_range() {
        let hour = Range::read(None, None, None, NOW).expect("the default");
        assert_eq!((hour.from_ms, hour.query().as_str()), (NOW - 3_600_000, "range=1h"));
        assert_eq!(hour.step(NOW), Step::Fine);
        let all = Range::read(Some("all"), None, None, NOW).expect("a word");
        assert_eq!((all.from_ms, all.step(NOW)), (0, Step::Coarse));
        let two = Range::read(None, Some(5), Some(7), NOW).expect("two moments");
        assert_eq!(two.query(), "from=5&to=7");
        let wrong = Range::read(Some("2h"), None, None, NOW).expect_err("no such word");
        assert!(wrong.1.contains("15m"), "{wrong:?}");
        assert!(Range::read(None, Some(7), Some(7), NOW).is_err());
    }
}
