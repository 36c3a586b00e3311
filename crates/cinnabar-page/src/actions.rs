//! What an operator can do from the page. Each is a form that `page.js` sends through the control API,
//! and the command line that does the same, which is there without a script, too.

use crate::data::Data;
use crate::html::{el, escaped, in_url, wrap};
use crate::shell::{argument, quote};
use crate::words;
use cinnabar_config::settings::VolumeMode;
use cinnabar_policy::sizing::Allocator;

/// What a form sends, and how.
#[derive(Default)]
struct Action<'a> {
    /// Names it for scripts and tests.
    id: &'a str,
    /// On its button.
    label: &'a str,
    /// What it does, in a sentence.
    does: &'a str,
    method: &'a str,
    path: String,
    /// The same as a command.
    command: Command,
    /// Asked before it is done; empty: nothing is asked.
    confirm: String,
    fields: String,
}

/// A command line in parts: `$size` stands for what the field of that name holds, but not in the middle,
/// which others chose.
#[derive(Default)]
struct Command {
    before: String,
    /// Where the daemon is, and the name of what it is about.
    name: String,
    after: &'static str,
}

impl Command {
    fn text(&self) -> String {
        [self.before.as_str(), &self.name, self.after].concat()
    }
}

impl Action<'_> {
    fn html(&self) -> String {
        let Self { id, label, does, method, path, command, confirm, fields } = self;
        let (path, confirm) = (escaped(path), escaped(confirm));
        let text = escaped(&command.text());
        let (before, name) = (escaped(&command.before), escaped(&command.name));
        let class = if confirm.is_empty() { "" } else { " class=\"danger\"" };
        format!(
            "<form class=\"action\" id=\"act-{id}\" data-action=\"{id}\" data-method=\"{method}\" \
             data-path=\"{path}\" data-before=\"{before}\" data-name=\"{name}\" \
             data-after=\"{after}\" data-confirm=\"{confirm}\">{fields}\
             <button type=\"submit\" disabled{class}>{}</button> \
             <code class=\"command\">{text}</code>\
             <p class=\"hint\">{}</p>\
             <output class=\"result\" aria-live=\"polite\"></output></form>\n",
            escaped(label),
            escaped(does),
            after = command.after,
        )
    }
}

/// Words between `cinnabar` and the name, where the daemon is, and the name.
fn command(data: &Data, words: &str, name: &str) -> Command {
    let socket = match data.socket.as_str() {
        "" => String::new(),
        socket => format!(" --socket {}", quote(socket)),
    };
    let name = if name.is_empty() { String::new() } else { format!(" {}", argument(name)) };
    Command { before: format!("cinnabar {words}"), name: socket + &name, after: "" }
}

/// A note where nothing can be changed over HTTP.
fn note(data: &Data) -> String {
    if data.may_act {
        return el("noscript", "Actions need the script of this page; the commands do the same.");
    }
    el(
        "p class=\"note\" id=\"read-only\"",
        "Nothing can be changed here: [control] has no token_file. The commands do the same.",
    )
}

/// What can be done to a volume.
pub(crate) fn of_volume(data: &Data, name: &str, mode: VolumeMode, share: &str) -> String {
    let path = |rest: &str| format!("/v1/volumes/{}{rest}", in_url(name));
    let pins = format!("/v1/policy/pins/{}", in_url(name));
    let size = escaped(share);
    let pin = Action {
        id: "pin",
        label: "Pin share",
        does: "Its share stays so large until it is left to plans again.",
        method: "PUT",
        path: pins.clone(),
        command: Command { after: " $size", ..command(data, "policy pin", name) },
        confirm: String::new(),
        fields: format!(
            "<label>Share <input name=\"size\" id=\"pin-size\" required maxlength=\"20\" \
             value=\"{size}\" autocomplete=\"off\"></label> "
        ),
    };
    let unpin = Action {
        id: "unpin",
        label: "Leave share and mode to plans",
        does: "Its pin is dropped; the next plan may change both.",
        method: "DELETE",
        path: pins,
        command: command(data, "policy unpin", name),
        ..Action::default()
    };
    let option = |one: &VolumeMode| {
        let word = words::mode(*one);
        let chosen = if *one == mode { " selected" } else { "" };
        format!("<option value=\"{word}\"{chosen}>{word}</option>")
    };
    let options: String = words::MODES.iter().map(option).collect();
    let mode = Action {
        id: "mode",
        label: "Change mode",
        does: "From now on, and plans leave it.",
        method: "PATCH",
        path: path(""),
        command: command(data, "volume set --mode $mode", name),
        confirm: String::new(),
        fields: format!("<label>Mode <select name=\"mode\">{options}</select></label> "),
    };
    let flush = Action {
        id: "flush",
        label: "Flush",
        does: "Ends when the back end has every write that was acknowledged before.",
        method: "POST",
        path: path("/flush"),
        command: command(data, "volume flush", name),
        ..Action::default()
    };
    let invalidate = Action {
        id: "invalidate",
        label: "Invalidate\u{2026}",
        does: "Drops what is cached of it, after a question; it is read from the back end again.",
        method: "POST",
        path: path("/invalidate"),
        command: command(data, "volume invalidate", name),
        confirm: format!(
            "Drop everything that is cached of {name}? It will be read from its back end again."
        ),
        fields: String::new(),
    };
    let actions =
        [pin, unpin, mode, flush, invalidate].iter().map(Action::html).collect::<String>();
    note(data) + &wrap("div class=\"actions\"", &actions)
}

/// Makes a plan and carries it out.
pub(crate) fn of_plan(data: &Data, allocator: Option<&str>) -> String {
    let option = |one: &str, label: &str| {
        let chosen = if allocator.unwrap_or_default() == one { " selected" } else { "" };
        format!("<option value=\"{one}\"{chosen}>{label}</option>")
    };
    let options: String = std::iter::once(option("", "the current one"))
        .chain(Allocator::ALL.iter().map(|one| option(one.name(), one.name())))
        .collect();
    let apply = Action {
        id: "apply",
        label: "Apply plan",
        does: "Divides the cache among its volumes now, by what was read lately, and goes on with that allocator.",
        method: "POST",
        path: "/v1/policy/plan".into(),
        command: command(data, "policy plan --apply [--allocator $allocator]", ""),
        confirm: String::new(),
        fields: format!("<label>Allocator <select name=\"allocator\">{options}</select></label> "),
    };
    note(data) + &wrap("div class=\"actions\"", &apply.html())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::data;

    #[test]
    fn names_are_no_part_of_what_fields_are_put_into() {
        for name in ["db[$x]", "$size", "a [--all $mode]"] {
            let html = of_volume(&data(&[name]), name, VolumeMode::WriteThrough, "1GiB");
            let quoted = quote(name);
            let whole =
                format!("cinnabar policy pin --socket /run/cinnabar/control.sock {quoted} $size");
            assert!(html.contains(&format!(">{}</code>", escaped(&whole))), "{html}");
            let mut ours = 0;
            for attribute in ["data-before=\"", "data-after=\""] {
                for words in html.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
                {
                    assert!(!words.contains(&*escaped(name)) || words == " $size", "{words}");
                    ours += 1;
                }
            }
            assert_eq!(ours, 10, "five actions");
            assert!(
                html.contains(&format!("{}\" data-after=\" $size\"", escaped(&quoted))),
                "{html}"
            );
        }
    }
}
