//! Views of statuses that are made up: names of others, sizes, and that numbers are those given.
