//! A terminal that nobody sits at: what is typed there, and what it shows.

use std::{
    ffi::OsStr,
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};

use super::program::{Running, program};

pub struct Terminal {
    /// The end that holds the keyboard and the screen.
    controller: File,
    /// The end that programs have.
    user: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
    found: Termios,
}

impl Terminal {
    pub fn open(rows: u16, columns: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let name = OsStr::from_bytes(name.as_bytes());
        let user = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let controller = File::from(controller);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        show(controller.try_clone().unwrap(), Arc::clone(&screen));
        let terminal = Self { found: tcgetattr(&user).unwrap(), controller, user, screen };
        terminal.resize(rows, columns);
        terminal
    }

    /// Runs a program at it.
    pub fn run(&self, command: &Command) -> Running {
        let end = || Stdio::from(self.user.try_clone().unwrap());
        // In a session of its own: another terminal than this one would be asked for its size.
        let mut session = program("setsid", "util-linux");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        Running(session.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap())
    }

    /// Types these keys.
    pub fn press(&self, keys: &str) {
        (&self.controller).write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.controller, size).unwrap();
    }

    /// What it shows, as text.
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Whether some of what it shows is coloured.
    pub fn has_colours(&self) -> bool {
        let screen = self.screen.lock().unwrap();
        let (rows, columns) = screen.screen().size();
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| screen.screen().cell(row, column))
            .any(|cell| cell.fgcolor() != vt100::Color::Default)
    }

    /// Whether a program draws upon a screen of its own, and reads keys as they are typed.
    pub fn is_taken(&self) -> bool {
        self.screen.lock().unwrap().screen().alternate_screen() && !self.has_modes_as_found()
    }

    /// Whether it is as it was before any program ran.
    pub fn is_as_found(&self) -> bool {
        let screen = self.screen.lock().unwrap();
        let is_plain = !screen.screen().alternate_screen() && !screen.screen().hide_cursor();
        is_plain && self.has_modes_as_found()
    }

    fn has_modes_as_found(&self) -> bool {
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, of.local_modes);
        modes(&tcgetattr(&self.user).unwrap()) == modes(&self.found)
    }
}

/// Shows what is written there, until the terminal is gone.
fn show(mut controller: File, screen: Arc<Mutex<vt100::Parser>>) {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = controller.read(&mut bytes) {
            screen.lock().unwrap().process(&bytes[..count]);
        }
    });
}
