//! Transactions whose parts run as regions in hardware, or as the regions' twins: under `htm-naive`, DBX, timestamp
//! ordering and DBX-TC. They are one program, since most of its code is the engine's.

mod dbx_tc;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod htm_naive;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod rtm;
