//! Ports that stay ours.

use std::{
    fs::File,
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
};

/// Below the ports that the kernel gives to outgoing connections (32768 and up on Linux), one of which could otherwise
/// take a member's port while the member is being restarted.
const FIRST: u16 = 18_000;
const COUNT: u16 = 14_000;

/// A port of 127.0.0.1 that no other testbed of this machine uses while this value lives.
///
/// The reservation is a locked file: the kernel drops the lock with its holder, so nothing leaks.
pub struct Port {
    number: u16,
    _reservation: File,
}

impl Port {
    /// Reserves a port that nobody listens on.
    pub fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let folder = std::env::temp_dir().join("kubefold-testbed-ports");
        std::fs::create_dir_all(&folder).expect("a folder for port reservations");
        // Processes start at different places, so that they seldom try each other's ports.
        let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap();
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            let number = FIRST + (start + step) % COUNT;
            let Ok(file) = File::create(folder.join(number.to_string())) else { continue };
            if file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Self { number, _reservation: file };
            }
        }
        panic!("no port from {FIRST} on is free");
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:<number>`.
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}
