//! Statistics that the kernel has of a TCP connection.

use std::os::fd::AsFd;

// The macros use each other, and `libc`, by these names.
use nix::{getsockopt_impl, libc, sockopt_impl, sys::socket::getsockopt};

/// The beginning of `struct tcp_info` (linux/tcp.h), up to the last field used. The kernel fills as much as it has room
/// for, and has all of these fields since Linux 4.1.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct TcpInfoHead {
    /// States, options and windows.
    bytes: [u8; 8],
    /// Times, sizes and counts.
    words: [u32; 24],
    pacing_rates: [u64; 2],
    /// RFC 4898, `tcpEStatsAppHCThruOctetsAcked`.
    bytes_acked: u64,
}

sockopt_impl!(TcpInfo, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfoHead);

/// Bytes that the other end has acknowledged. `None`: the kernel does not tell.
pub(super) fn bytes_acknowledged(socket: &impl AsFd) -> Option<u64> {
    Some(getsockopt(socket, TcpInfo).ok()?.bytes_acked)
}
