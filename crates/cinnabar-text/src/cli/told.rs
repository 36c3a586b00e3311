//! A check for tests: whether a program's help tells what it must.

use clap::Command;

/// Every command that does something has examples, and every flag says its default, but for those of
/// these names.
///
/// # Panics
/// At the first that doesn't.
pub fn assert_told(program: &mut Command, without_default: &[&str]) {
    visit(program, "", without_default);
}

fn visit(command: &mut Command, path: &str, without_default: &[&str]) {
    let name = format!("{path} {}", command.get_name());
    let help = command.render_long_help().to_string();
    if !command.has_subcommands() {
        assert!(help.contains("Examples:"), "{name} has no examples");
    }
    for flag in command.get_arguments().filter(|flag| flag.get_long().is_some()) {
        let id = flag.get_id().as_str();
        let told = flag.get_help().is_some_and(|help| help.to_string().contains("[default: "));
        let has = !flag.get_default_values().is_empty() || told;
        let needs_none = flag.is_required_set() || ["help", "version"].contains(&id);
        assert!(
            has || needs_none || without_default.contains(&id),
            "{name} --{id} tells no default"
        );
    }
    for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help") {
        visit(below, &name, without_default);
    }
}
