//! Enums whose variants have names, as command lines and reports write them.

/// Nothing has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {what} is called `{name}`: there are {}", known.join(", "))]
pub struct UnknownName {
    /// What was looked for: "policy".
    pub what: &'static str,
    /// The unknown name, as it was given.
    pub name: String,
    /// What there is.
    pub known: Vec<&'static str>,
}

/// Declares an enum with a name for each variant: `ALL`, `NAMES`, `name` and `Display`; `FromStr` as well
/// where it says what it is that has the names.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $kind:ident { $($(#[$of:meta])* $variant:ident = $name:literal,)+ }
    ) => {
        $(#[$meta])*
        pub enum $kind { $($(#[$of])* $variant,)+ }

        impl $kind {
            /// Their names, in the order of [`Self::ALL`].
            pub const NAMES: &[&str] = &[$($name),+];
            /// All of them.
            pub const ALL: [Self; Self::NAMES.len()] = [$(Self::$variant),+];

            /// As command lines and reports have it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
    ($what:literal: $(#[$meta:meta])* pub enum $kind:ident { $($variants:tt)+ }) => {
        $crate::named! { $(#[$meta])* pub enum $kind { $($variants)+ } }

        impl std::str::FromStr for $kind {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|one| one.name() == name);
                let known = Self::NAMES.to_vec();
                found.ok_or_else(|| $crate::UnknownName { what: $what, name: name.to_owned(), known })
            }
        }
    };
}
