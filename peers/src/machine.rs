//! The machine, the compiler and the versions of the compared systems.

use serde::Serialize;

/// What a table of speeds depends on besides the systems.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The model of the processor.
    pub processor: String,
    /// The number of processors that this process may use.
    pub processors: usize,
    /// The operating system.
    pub system: &'static str,
    /// The version of the compiler.
    pub rustc: &'static str,
}

impl Machine {
    /// Returns this machine.
    pub fn this() -> Self {
        let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            processor: processor_model(&information).unwrap_or(std::env::consts::ARCH).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            system: std::env::consts::OS,
            rustc: env!("RUSTC_VERSION"),
        }
    }
}

/// Returns the processor's model from the contents of `/proc/cpuinfo`.
fn processor_model(information: &str) -> Option<&str> {
    let line = information.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// Returns the version of a package that this program was built with.
pub fn package_version(package: &str) -> Option<&'static str> {
    locked_version(include_str!("../Cargo.lock"), package)
}

fn locked_version<'a>(lock_file: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock_file.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_model_is_the_first_one() {
        let information = "processor\t: 0\nmodel name\t: A Fast One\nmodel name\t: Another\n";
        assert_eq!(processor_model(information), Some("A Fast One"));
        assert_eq!(processor_model(""), None);
    }

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock_file = "[[package]]\nname = \"heed-types\"\nversion = \"1.0.0\"\n\n\
                         [[package]]\nname = \"heed\"\nversion = \"2.0.0\"\n";
        assert_eq!(locked_version(lock_file, "heed"), Some("2.0.0"));
        assert_eq!(locked_version(lock_file, "redb"), None);
        assert!(package_version("redb").is_some());
    }
}
