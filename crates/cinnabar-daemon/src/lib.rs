//! The daemon: data threads that serve guests, and one control thread that talks to operators.
//!
//! The two sides share nothing but [`cinnabar_messages`]. Here is the data plane, and what starts both
//! and stops them; operators are answered by [`cinnabar_control`], shares managed by
//! [`cinnabar_manager`].

pub mod dataplane;
pub mod run;
pub mod signals;
