//! The commands of a program as a table, for the guide.

use clap::{Arg, Command};
use std::fmt::Write;

/// A row of Markdown for each command: what it takes, and what it is for. Left out are commands that are
/// hidden or run by another program, and flags that every command has or that are in `common`.
pub fn table_of(program: &Command, common: &[&str]) -> String {
    let mut rows = String::from("| command | what it does |\n|---|---|\n");
    for command in program.get_subcommands() {
        visit(command, "", common, &mut rows);
    }
    rows
}

fn visit(command: &Command, path: &str, common: &[&str], rows: &mut String) {
    // Another program prints the help of those that have none.
    if command.is_hide_set() || command.is_disable_help_flag_set() || command.get_name() == "help" {
        return;
    }
    let path = format!("{path}{}", command.get_name());
    if command.has_subcommands() {
        for below in command.get_subcommands() {
            visit(below, &format!("{path} "), common, rows);
        }
        return;
    }
    let shown = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        !arg.is_hide_set() && !["help", "version"].contains(&id) && !common.contains(&id)
    };
    let mut all: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    all.sort_by_key(|arg| (!arg.is_positional(), !arg.is_required_set()));
    let usage: Vec<String> = all.into_iter().map(|arg| format!(" {}", usage(arg))).collect();
    let usage = usage.concat();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    // Writing to a string does not fail.
    let _ok = writeln!(rows, "| `{path}{}` | {about} |", usage.replace('|', "\\|"));
}

/// An argument as a usage line has it: `[--size SIZE]`.
fn usage(arg: &Arg) -> String {
    let id = arg.get_id().as_str().to_uppercase();
    let names = arg.get_value_names().map_or(id, |names| names.join(" "));
    let range = arg.get_num_args().unwrap_or_default();
    let value =
        if arg.is_positional() && range.max_values() > 1 { format!("{names}...") } else { names };
    let text = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) if !arg.get_action().takes_values() => format!("--{long}"),
        (Some(long), _) if arg.is_require_equals_set() => format!("--{long}[={value}]"),
        (Some(long), _) => format!("--{long} {value}"),
        (None, Some(short)) => format!("-{short} {value}"),
        (None, None) => value,
    };
    if arg.is_required_set() { text } else { format!("[{text}]") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_with_what_they_take() {
        let add = Command::new("add").about("Adds it").args([
            Arg::new("size").long("size").value_name("SIZE"),
            Arg::new("to").long("to").value_name("A|B").required(true),
            Arg::new("json").long("json").action(clap::ArgAction::SetTrue),
            Arg::new("socket").long("socket"),
            Arg::new("name").num_args(1..).required(true),
        ]);
        let mut program = Command::new("x").subcommands([
            Command::new("volume").subcommand(add),
            Command::new("secret").hide(true),
            Command::new("other").disable_help_flag(true),
        ]);
        program.build();
        assert_eq!(
            table_of(&program, &["socket"]),
            "| command | what it does |\n|---|---|\n\
             | `volume add NAME... --to A\\|B [--size SIZE] [--json]` | Adds it |\n"
        );
    }
}
