//! The configuration file that a command reads.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::ValueHint;

use super::failure::{WRONG_ARGUMENTS, print_error};

/// A file, which is given by itself or by an option.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ConfigFile {
    /// The configuration file [default: proxy.yaml]
    #[arg(value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// The same, as an option
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// The file of `--config`.
    pub(super) fn by_option(config: Option<PathBuf>) -> Self {
        Self { file: None, config }
    }

    /// The path; `proxy.yaml` by default.
    ///
    /// # Errors
    /// Two different files are given; this was printed.
    pub(super) fn path(&self) -> Result<&Path, ExitCode> {
        match (self.file.as_deref(), self.config.as_deref()) {
            (Some(file), Some(config)) if file != config => {
                let (file, config) = (file.display(), config.display());
                print_error(format_args!(
                    "tollgate: two configurations are given, {file} and --config {config}; leave one of them out\n"
                ));
                Err(ExitCode::from(WRONG_ARGUMENTS))
            }
            (file, config) => Ok(file.or(config).unwrap_or(Path::new("proxy.yaml"))),
        }
    }
}
