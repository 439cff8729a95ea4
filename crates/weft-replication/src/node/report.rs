//! What an operator should know of a node.

use std::fmt;
use std::fmt::Display;
use std::path::PathBuf;

use crate::directory::Loss;
use crate::reader::Fault;

/// Something that an operator should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// Records that this node has are not in the log, and other ones are. They are lost.
    Lost(Loss),
    /// The log had lost records that this node has. The node has appended them again.
    Repaired {
        /// How many.
        records: usize,
    },
    /// Records were missing when another node became the primary. They are lost, unless that other node has them.
    Missing(Fault),
    /// A backup was passed over.
    BackupSkipped(String),
    /// The node has begun with a backup, since the log does not continue what its directory had. That is in this directory
    /// now.
    SetAside(PathBuf),
    /// The rows could not be written to the node's directory. The node goes on, and tries again.
    BaseFailed(String),
}

impl Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Lost(loss) => loss.fmt(formatter),
            Report::Repaired { records } => {
                write!(formatter, "{records} records that the log had lost were appended again")
            }
            Report::Missing(fault) => write!(formatter, "a new primary went on although {fault}"),
            Report::BackupSkipped(what) => write!(formatter, "backup {what}"),
            Report::SetAside(path) => write!(
                formatter,
                "the node has begun with a backup; what its directory had is in {}",
                path.display()
            ),
            Report::BaseFailed(error) => {
                write!(formatter, "the rows could not be written to the node's directory: {error}")
            }
        }
    }
}
