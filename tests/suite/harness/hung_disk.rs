//! A disk that does not answer, as a network file system whose server is away.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A mounted file system in user space that nobody serves. It answers, with errors, when it is dropped.
pub struct HungDisk {
    holder: Child,
    directory: TempDir,
}

impl HungDisk {
    /// `None` where it can't be mounted, which takes root and `/dev/fuse`.
    pub fn mount() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let script = "exec 3<>/dev/fuse && \
             mount -i -t fuse hung \"$0\" -o fd=3,rootmode=40000,user_id=0,group_id=0,allow_other && \
             echo mounted && exec sleep 1000";
        let mut holder = Command::new("sh")
            .args(["-c", script])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said != "mounted\n" {
            let _ = holder.wait();
            eprintln!("no file system can be mounted here: not tested");
            return None;
        }
        Some(Self { holder, directory })
    }

    /// Where it is mounted. Whatever asks for something there waits.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for HungDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let _ = Command::new("umount").arg("-l").arg(self.directory.path()).status();
    }
}
