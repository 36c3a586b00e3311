//! The scheduler in a simulated world, judged by what the server got and when; and deliberate bugs,
//! each of which a scenario must find.

mod direct;
mod drawn;
mod judge;
mod mutants;
mod properties;
mod scenarios;
mod world;
