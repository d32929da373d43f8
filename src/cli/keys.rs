//! Single keys of a terminal.

use std::io::{IsTerminal, Read as _, Stdin};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Keys typed ahead; further ones wait in the terminal.
const AHEAD_MAX: usize = 16;

/// Keys as they are pressed. The terminal is as before when this is dropped.
pub(super) struct Keys {
    pressed: mpsc::Receiver<char>,
    before: Termios,
    terminal: Stdin,
}

impl Keys {
    /// `None`: standard input is no terminal.
    pub(super) fn of_terminal() -> anyhow::Result<Option<Self>> {
        let terminal = std::io::stdin();
        if !terminal.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&terminal)?;
        let mut single = before.clone();
        // Without lines and echo; Ctrl-C stays a signal.
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&terminal, OptionalActions::Now, &single)?;
        let (press, pressed) = mpsc::channel(AHEAD_MAX);
        // A thread of its own: it ends with the process, whatever the terminal does.
        std::thread::Builder::new().name("keys".into()).spawn(move || {
            let mut key = [0];
            while matches!(std::io::stdin().lock().read(&mut key), Ok(1)) {
                if press.blocking_send(char::from(key[0])).is_err() {
                    return;
                }
            }
        })?;
        Ok(Some(Self { pressed, before, terminal }))
    }

    /// The next key; `None`: the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<char> {
        self.pressed.recv().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _gone = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
