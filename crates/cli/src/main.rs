//! The binary `glasscache`: reads the command line and hands over to one file per subcommand.

fn main() {}
