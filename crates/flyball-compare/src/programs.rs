//! Programs as arms: one design from bare words, directories, parameters and settings.
//!
//! The arms are the product of programs, directories, parameters and settings. The first arm, with
//! which the others are compared, has the first value of each.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use flyball_host::CommandKnob;
use flyball_measure::{
    Arm, ArmError, ArmSetting, Hooks, Meaning, Program, ProgramFile, Server, SplitError, quote, split,
};

/// The options of `compare` that describe programs.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Programs")]
pub struct ProgramArgs {
    /// Programs to compare, each in quotes: './new --fast'. A word like governor=performance is an
    /// arm of settings, and 'now' the machine as it is. Words after -- are added to each program.
    #[arg(value_name = "PROGRAM|SETTINGS")]
    pub arms: Vec<String>,

    /// Name of a program in the report, in the order of the programs.
    #[arg(long, alias = "name", value_name = "NAME")]
    pub command_name: Vec<String>,

    /// Directories to run in, as in --in old,new -- make bench. Each makes an arm.
    #[arg(id = "in", long = "in", value_name = "DIR,DIR", value_delimiter = ',')]
    pub directories: Vec<PathBuf>,

    /// Values for {NAME} in the command and in --setup, --rebuild, --prepare, --conclude and
    /// --cleanup: n=1..8, n=1..8:2 (by 2) or n=a,b. Each value makes an arm. An empty value leaves
    /// out a word that is {NAME} alone.
    #[arg(long, value_name = "NAME=VALUES")]
    pub parameter: Vec<String>,

    /// Same as --parameter NAME=MIN..MAX, spelled as in hyperfine.
    #[arg(short = 'P', long, value_names = ["NAME", "MIN", "MAX"], num_args = 3, hide_short_help = true)]
    pub parameter_scan: Vec<String>,

    /// Step of -P.
    #[arg(short = 'D', long, value_name = "STEP", requires = "parameter_scan", hide_short_help = true)]
    pub parameter_step_size: Option<String>,

    /// Same as --parameter NAME=VALUES, spelled as in hyperfine.
    #[arg(short = 'L', long, value_names = ["NAME", "VALUES"], num_args = 2, hide_short_help = true)]
    pub parameter_list: Vec<String>,

    /// Run programs through this shell: sh, 'bash -e'. Its start is part of the time. With none,
    /// the default, they run without one.
    #[arg(short = 'S', long, value_name = "SHELL")]
    pub shell: Option<String>,

    /// Run programs without a shell, which is the default.
    #[arg(short = 'N', long, hide_short_help = true)]
    pub no_shell: bool,

    /// Server that runs during each round, started in the arm's directory. COMMAND after -- is the
    /// load. {NAME} is replaced as in the command.
    #[arg(long, value_name = "SERVER", hide_short_help = true)]
    pub serve: Option<String>,

    /// Load generator: its output is measured while a server runs. Without --serve, the programs
    /// are the servers.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["command", "shell", "workload"], hide_short_help = true)]
    pub load: Option<String>,

    /// The server is ready when this PORT or HOST:PORT accepts connections, when its output has
    /// line:TEXT, or when this shell command succeeds, within 60 s or --timeout [default: after
    /// half a second].
    #[arg(long, value_name = "WHEN", hide_short_help = true)]
    pub ready: Option<String>,

    /// Variable for the environment of the programs; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", hide_short_help = true)]
    pub env: Vec<String>,

    /// File that programs read as standard input [default: nothing].
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Shell command to run before the first round of each arm, not measured.
    #[arg(short = 's', long, value_name = "COMMAND")]
    pub setup: Option<String>,

    /// Shell command that builds an arm again before each block, not measured. FLYBALL_SEED
    /// differs each time; use it to link in random order.
    #[arg(long, value_name = "COMMAND", conflicts_with = "fixed_layout", hide_short_help = true)]
    pub rebuild: Option<String>,

    /// Shell command to run after each round, not measured.
    #[arg(short = 'C', long, value_name = "COMMAND", hide_short_help = true)]
    pub conclude: Option<String>,

    /// Shell command to run after the last round of each arm, not measured.
    #[arg(long, value_name = "COMMAND", hide_short_help = true)]
    pub cleanup: Option<String>,

    /// Also run the first arm a second time in each block. If flyball finds a difference between
    /// these equal arms, it gives no verdict.
    #[arg(long)]
    pub aa: bool,

    /// Fail a round in which the output of a program differs from that of the first arm.
    #[arg(long, hide_short_help = true)]
    pub same_output: bool,
}

/// Why programs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(
        "'{word}' is neither a program nor a setting: there is no file '{program}'{}, and a setting is written \
         KNOB=VALUE\nhint: {}give --shell sh for a line that a shell reads",
        if .program.contains('/') { "" } else { " in PATH" },
        if .program.contains('/') { String::new() } else { format!("write ./{program} for a file here, or ") }
    )]
    Neither { word: String, program: String },
    #[error("'{word}': {program} is not executable\nhint: chmod +x {program}")]
    NotExecutable { word: String, program: String },
    #[error("'{word}': {program} is a directory")]
    Directories { word: String, program: String },
    #[error("--shell '{0}': there is no such program")]
    NoShell(String),
    #[error("--ready {0}: a port is a number from 1 to 65535")]
    Port(String),
    #[error(
        "'{word}' looks like a setting, but there is no knob '{knob}'\nhint: 'flyball explain' lists the knobs; a \
         variable for a program is given as --env {knob}=VALUE"
    )]
    NoKnob { word: String, knob: String },
    #[error("'{word}': {cause}")]
    Split { word: String, cause: SplitError },
    #[error(
        "'{settings}' is an arm of settings and '{program}' one of programs\nhint: --matrix {settings},now runs \
         each program under each setting"
    )]
    Mixed { program: String, settings: String },
    #[error("give programs as words or as --matrix program=A,B, not both")]
    Twice,
    #[error(
        "--parameter '{0}': write NAME=1..8, NAME=1..8:2 or NAME=a,b, from low to high, with at most {MAX_VALUES} values"
    )]
    Parameter(String),
    #[error("no command has {{{0}}}: the values of --parameter {0} would change nothing")]
    UnusedParameter(String),
    #[error("give --command-name once per program: there are {names} for {programs}")]
    Names { names: usize, programs: usize },
    #[error(
        "--load needs a server: --serve SERVER, or programs as in 'flyball compare ./old ./new --load wrk'"
    )]
    NoServer,
    #[error("--ready needs a server: --serve or --load")]
    NothingToAwait,
    #[error("--env '{0}': write NAME=VALUE")]
    Variable(String),
    #[error("--in {}: {cause}", .directory.display())]
    Directory { directory: PathBuf, cause: std::io::Error },
    #[error("--input {}: {cause}", .file.display())]
    Input { file: PathBuf, cause: std::io::Error },
    #[error("{option} needs programs: give them as words, or a command after --")]
    NoProgram { option: &'static str },
    #[error(transparent)]
    Arms(#[from] ArmError),
}

/// The meaning of a bare word.
enum Word {
    Settings,
    Program(Vec<String>),
}

/// The comparison that the command line describes.
pub struct Design {
    pub arms: Vec<Arm>,
    /// The command that all arms share, if no arm has its own program.
    pub command: Vec<String>,
    pub environment: BTreeMap<String, String>,
}

impl Design {
    /// The arms' own programs. None if all arms share one command.
    pub fn programs(&self) -> impl Iterator<Item = &Program> + Clone {
        self.arms.iter().filter_map(|arm| arm.program.as_ref())
    }
}

/// The words of the command line, sorted by their meaning.
struct Words {
    settings: Vec<String>,
    /// Rows of `--matrix` other than programs.
    rows: Vec<String>,
    /// Each program's line and its arguments.
    programs: Vec<(String, Vec<String>)>,
}

/// Rejects a parameter that no program and no hook uses.
fn check_used(
    parameters: &[(String, Vec<String>)],
    programs: &[(String, Vec<String>)],
    servers: &[Vec<String>],
    hooks: &Hooks,
) -> Result<(), ProgramError> {
    for (name, _) in parameters {
        let mark = format!("{{{name}}}");
        let texts = programs.iter().flat_map(|(_, argv)| argv).map(String::as_str);
        let hooks = flyball_measure::Hook::ALL.into_iter().filter_map(|hook| hooks.get(hook));
        let texts = texts.chain(servers.iter().flatten().map(String::as_str));
        if !texts.chain(hooks).any(|text| text.contains(&mark)) {
            return Err(ProgramError::UnusedParameter(name.clone()));
        }
    }
    Ok(())
}

impl ProgramArgs {
    /// The first given option that acts on a process, which a model of a workload does not have.
    pub fn process_option(&self) -> Option<&'static str> {
        let options = [
            (self.shell.is_some(), "--shell"),
            (!self.env.is_empty(), "--env"),
            (self.input.is_some(), "--input"),
            (self.setup.is_some(), "--setup"),
            (self.rebuild.is_some(), "--rebuild"),
            (self.conclude.is_some(), "--conclude"),
            (self.cleanup.is_some(), "--cleanup"),
            (self.same_output, "--same-output"),
            (self.serve.is_some(), "--serve"),
            (self.load.is_some(), "--load"),
        ];
        options.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// The arms of programs, of `--arm` and of `--matrix`. `command` are the words after `--`, and
    /// `prepare` is the option of that name.
    ///
    /// # Errors
    /// Words that are neither programs nor settings; impossible designs.
    pub fn design(
        &self,
        typed: &[String],
        matrix: &[String],
        command: &[String],
        prepare: Option<&String>,
        knobs: &[CommandKnob],
    ) -> Result<Design, ProgramError> {
        // First, because programs are searched for in these directories.
        self.check_files()?;
        let Words { settings, rows, mut programs } = self.words(typed, matrix, knobs)?;
        let shared = programs.is_empty();
        let load = self.load.as_deref().map(words_of).transpose()?;
        let command = load.as_deref().filter(|_| self.serve.is_some()).unwrap_or(command);
        if shared {
            let argv = match (&self.shell, command) {
                (Some(shell), [line]) => in_shell(shell, line)?,
                _ => command.to_vec(),
            };
            programs.push((quote(command), argv));
        } else {
            for (_, argv) in &mut programs {
                extend(argv, command, self.shell.is_some());
            }
        }
        if !self.command_name.is_empty() && self.command_name.len() != programs.len() {
            return Err(ProgramError::Names { names: self.command_name.len(), programs: programs.len() });
        }
        for (program, name) in programs.iter_mut().zip(&self.command_name) {
            program.0.clone_from(name);
        }
        let servers = self.servers(&mut programs, load.as_deref(), shared)?;
        let environment = self.environment()?;
        let parameters = self.parameters()?;
        let hooks = Hooks {
            setup: self.setup.clone(),
            rebuild: self.rebuild.clone(),
            prepare: prepare.cloned(),
            conclude: self.conclude.clone(),
            cleanup: self.cleanup.clone(),
        };
        check_used(&parameters, &programs, &servers, &hooks)?;
        let sizes = parameters.iter().map(|(_, values)| values.len());
        let count =
            sizes.chain([programs.len(), self.directories.len().max(1)]).fold(1, usize::saturating_mul);
        if count > Arm::MAX {
            return Err(ArmError::Many(count).into());
        }
        // A command alone is one program.
        let is_alone = settings.is_empty() && rows.is_empty() && !command.is_empty();
        let is_one = servers.is_empty() && parameters.is_empty() && self.directories.is_empty();
        let plain = shared && is_one && !is_alone;
        // A workload that all arms share belongs to the comparison, and arms are settings only.
        let variants = if plain {
            vec![(String::new(), None)]
        } else {
            self.variants(&programs, &servers, &parameters, &hooks)
        };
        if plain && command.is_empty() && !self.command_name.is_empty() {
            return Err(ProgramError::NoProgram { option: "--command-name" });
        }
        if !plain && shared && command.is_empty() {
            let unserved = if parameters.is_empty() { "--in" } else { "--parameter" };
            let option = if servers.is_empty() { unserved } else { "--serve" };
            return Err(ProgramError::NoProgram { option });
        }
        let under = match (settings.is_empty() && rows.is_empty(), plain) {
            (true, false) => vec![Arm::now()],
            (true, true) if self.aa => vec![Arm::now()],
            // One arm is enough if another comes from programs or from --aa.
            _ => Arm::from_words(&settings, &rows, knobs)?,
        };
        let mut arms = Vec::new();
        for under in &under {
            for (name, program) in &variants {
                let is_now = under.settings.is_empty() && under.name == "now";
                let name = match (name.is_empty(), is_now && !plain) {
                    (true, _) => under.name.clone(),
                    (false, true) => name.clone(),
                    (false, false) => format!("{name} {}", under.name),
                };
                arms.push(Arm { name, program: program.clone(), ..under.clone() });
            }
        }
        if let Some(first) = arms.first().filter(|_| self.aa) {
            arms.push(Arm { name: format!("{} again", first.name), control: true, ..first.clone() });
        }
        distinguish(&mut arms);
        check(&arms)?;
        let command = programs.into_iter().next().filter(|_| plain).map(|(_, argv)| argv);
        Ok(Design { arms, command: command.unwrap_or_default(), environment })
    }

    /// The server of each program. With `--load` alone, the programs are servers, and the load
    /// replaces them.
    fn servers(
        &self,
        programs: &mut [(String, Vec<String>)],
        load: Option<&[String]>,
        shared: bool,
    ) -> Result<Vec<Vec<String>>, ProgramError> {
        match (&self.serve, load) {
            (Some(line), _) => Ok(vec![words_of(line)?; programs.len()]),
            (None, Some(_)) if shared => Err(ProgramError::NoServer),
            (None, Some(load)) => {
                Ok(programs.iter_mut().map(|(_, argv)| std::mem::replace(argv, load.to_vec())).collect())
            }
            (None, None) if self.ready.is_some() => Err(ProgramError::NothingToAwait),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Sorts the words of the command line and the rows of `--matrix`.
    fn words(
        &self,
        typed: &[String],
        matrix: &[String],
        knobs: &[CommandKnob],
    ) -> Result<Words, ProgramError> {
        let (mut settings, mut programs) = (typed.to_vec(), Vec::new());
        let mut rows = Vec::new();
        for row in matrix {
            match row.split_once('=') {
                Some(("program", lines)) => {
                    for line in lines.split(',').filter(|line| !line.trim().is_empty()) {
                        programs.push((line.to_owned(), self.program(line, self.directories.first())?));
                    }
                }
                _ => rows.push(row.clone()),
            }
        }
        let from_matrix = !programs.is_empty();
        for word in &self.arms {
            match self.read(word, knobs)? {
                Word::Settings => settings.push(word.clone()),
                Word::Program(_) if from_matrix => return Err(ProgramError::Twice),
                Word::Program(argv) => programs.push((word.clone(), argv)),
            }
        }
        let mixed =
            programs.first().zip(self.arms.iter().find(|word| !programs.iter().any(|one| one.0 == **word)));
        if let Some(((program, _), settings)) = mixed.filter(|_| !from_matrix) {
            return Err(ProgramError::Mixed { program: program.clone(), settings: settings.clone() });
        }
        Ok(Words { settings, rows, programs })
    }

    /// Every program in every directory with every value, and its name.
    fn variants(
        &self,
        programs: &[(String, Vec<String>)],
        servers: &[Vec<String>],
        parameters: &[(String, Vec<String>)],
        hooks: &Hooks,
    ) -> Vec<(String, Option<Program>)> {
        let mut values: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
        for (name, list) in parameters {
            values = values
                .iter()
                .flat_map(|so_far| {
                    list.iter().map(|value| {
                        let mut all = so_far.clone();
                        all.insert(name.clone(), value.clone());
                        all
                    })
                })
                .collect();
        }
        let directories: Vec<Option<&PathBuf>> = match self.directories.as_slice() {
            [] => vec![None],
            some => some.iter().map(Some).collect(),
        };
        let mut all = Vec::new();
        for values in &values {
            for directory in &directories {
                for (place, (name, argv)) in programs.iter().enumerate() {
                    let fill = |text: &str| {
                        values.iter().fold(text.to_owned(), |text, (name, value)| {
                            text.replace(&format!("{{{name}}}"), value)
                        })
                    };
                    let mut parts = Vec::new();
                    let is_named = !self.command_name.is_empty();
                    if programs.len() > 1 || is_named || (directories.len() == 1 && values.is_empty()) {
                        parts.push(if is_named { fill(name) } else { name.clone() });
                    }
                    parts.extend(
                        directory.filter(|_| directories.len() > 1).map(|path| path.display().to_string()),
                    );
                    let is_said = |parameter: &str| is_named && name.contains(&format!("{{{parameter}}}"));
                    let unsaid = values.iter().filter(|(parameter, _)| !is_said(parameter));
                    parts.extend(unsaid.map(|(name, value)| format!("{name}={value}")));
                    let words = argv.iter().map(|word| (word, fill(word)));
                    let argv: Vec<String> = words
                        .filter(|(word, filled)| word.is_empty() || !filled.is_empty())
                        .map(|(_, filled)| filled)
                        .collect();
                    let directory = directory.cloned();
                    let program = Program {
                        // A file that hooks may build is not recorded.
                        file: argv
                            .first()
                            .filter(|_| hooks.is_empty())
                            .and_then(|program| file_of(program, directory.as_deref())),
                        argv,
                        directory,
                        parameters: values.clone(),
                        hooks: if values.is_empty() { Hooks::default() } else { hooks.map(fill) },
                        server: servers.get(place).map(|argv| Server {
                            argv: argv.iter().map(|word| fill(word)).collect(),
                            ready: self.ready.as_deref().map(fill),
                        }),
                    };
                    all.push((parts.join(" "), Some(program)));
                }
            }
        }
        all
    }

    /// Tells settings from programs. With `--shell`, every word except `now` and known settings is
    /// a line for the shell.
    fn read(&self, word: &str, knobs: &[CommandKnob]) -> Result<Word, ProgramError> {
        if word.trim() == "now" {
            return Ok(Word::Settings);
        }
        // Without quotes: a setting has none before its value.
        let first = word.split_whitespace().next().unwrap_or_default();
        // `NAME: KNOB=VALUE`, as in --arm.
        let named =
            word.split_once(':').filter(|(name, rest)| !name.contains(['=', '/']) && rest.contains('='));
        let first = named.map_or(first, |(_, rest)| rest.split_whitespace().next().unwrap_or_default());
        if let Some(setting) = ArmSetting::parse(first).filter(|setting| !setting.knob().contains('/')) {
            return match (setting.meaning(), setting.user_knob(knobs)) {
                (Meaning::Other(_), None) if self.shell.is_none() => {
                    Err(ProgramError::NoKnob { word: word.to_owned(), knob: setting.knob().to_owned() })
                }
                (Meaning::Other(_), None) => Ok(Word::Program(self.program(word, None)?)),
                _ => Ok(Word::Settings),
            };
        }
        Ok(Word::Program(self.program(word, self.directories.first())?))
    }

    /// The words of a program, which must exist: in `directory` if it has no absolute path.
    fn program(&self, line: &str, directory: Option<&PathBuf>) -> Result<Vec<String>, ProgramError> {
        if let Some(shell) = &self.shell {
            return in_shell(shell, line);
        }
        let argv = words_of(line)?;
        let program = argv.first().cloned().unwrap_or_default();
        // A program whose name has a parameter is found when it is started.
        if program.contains('{') {
            return Ok(argv);
        }
        match find(&program, directory.map(PathBuf::as_path)) {
            ProgramWord::Executable(_) => Ok(argv),
            ProgramWord::Directory => Err(ProgramError::Directories { word: line.to_owned(), program }),
            ProgramWord::File => Err(ProgramError::NotExecutable { word: line.to_owned(), program }),
            ProgramWord::Nothing => Err(ProgramError::Neither { word: line.to_owned(), program }),
        }
    }

    fn environment(&self) -> Result<BTreeMap<String, String>, ProgramError> {
        let pair = |text: &String| {
            let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
            Some((name.to_owned(), value.to_owned()))
        };
        self.env.iter().map(|text| pair(text).ok_or_else(|| ProgramError::Variable(text.clone()))).collect()
    }

    fn check_files(&self) -> Result<(), ProgramError> {
        if let Some(ready) = self.ready.as_ref().filter(|ready| ready.parse::<u64>().is_ok())
            && !ready.parse::<u16>().is_ok_and(|port| port > 0)
        {
            return Err(ProgramError::Port(ready.clone()));
        }
        for directory in &self.directories {
            let fault = match std::fs::metadata(directory) {
                Ok(data) if data.is_dir() => continue,
                Ok(_) => std::io::ErrorKind::NotADirectory.into(),
                Err(cause) => cause,
            };
            return Err(ProgramError::Directory { directory: directory.clone(), cause: fault });
        }
        let Some(file) = &self.input else { return Ok(()) };
        let opened = std::fs::File::open(file).and_then(|opened| opened.metadata());
        let is_directory = || std::io::ErrorKind::IsADirectory.into();
        let checked = opened.and_then(|data| if data.is_dir() { Err(is_directory()) } else { Ok(()) });
        checked.map_err(|cause| ProgramError::Input { file: file.clone(), cause })
    }

    /// The parameters with their values, in the order typed.
    fn parameters(&self) -> Result<Vec<(String, Vec<String>)>, ProgramError> {
        let mut all = Vec::new();
        for text in &self.parameter {
            let wrong = || ProgramError::Parameter(text.clone());
            let (name, values) = text.split_once('=').ok_or_else(wrong)?;
            all.push((name, values.to_owned()));
        }
        for words in self.parameter_scan.chunks(3) {
            let [name, low, high] = words else { continue };
            let step = self.parameter_step_size.as_ref().map_or_else(String::new, |step| format!(":{step}"));
            all.push((name, format!("{low}..{high}{step}")));
        }
        for words in self.parameter_list.chunks(2) {
            let [name, values] = words else { continue };
            all.push((name, values.clone()));
        }
        let read = |(name, values): (&str, String)| {
            let wrong = || ProgramError::Parameter(format!("{name}={values}"));
            let list = values_of(&values).filter(|_| !name.is_empty()).ok_or_else(wrong)?;
            Ok((name.to_owned(), list))
        };
        all.into_iter().map(read).collect()
    }
}

/// Maximum number of values of a parameter. The limit on arms is lower.
const MAX_VALUES: f64 = 1000.0;

/// Reads `1..8`, `1..8:2` or `a,b`.
fn values_of(text: &str) -> Option<Vec<String>> {
    let Some((low, rest)) = text.split_once("..") else {
        // `\,` is a comma in a value. No argument of a program has a zero byte.
        let escaped = text.replace("\\,", "\0");
        let list: Vec<String> = escaped.split(',').map(|value| value.trim().replace('\0', ",")).collect();
        return list.iter().any(|value| !value.is_empty()).then_some(list);
    };
    let (high, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    let (from, to, by) = (number(low)?, number(high)?, number(step)?);
    let count = ((to - from) / by + 1e-9).floor();
    if by == 0.0 || !(0.0..MAX_VALUES).contains(&count) {
        return None;
    }
    // Print as many decimals as the user typed, not 0.30000000000000004 for 0.1 + 0.2.
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, decimals)| decimals.trim().len());
    let decimals = [low, high, step].map(decimals).into_iter().max().unwrap_or(0);
    Some((0..=count as u32).map(|n| format!("{:.decimals$}", from + f64::from(n) * by)).collect())
}

fn words_of(line: &str) -> Result<Vec<String>, ProgramError> {
    split(line).map_err(|cause| ProgramError::Split { word: line.to_owned(), cause })
}

/// A line for a shell, as words.
fn in_shell(shell: &str, line: &str) -> Result<Vec<String>, ProgramError> {
    let shell = if shell == "default" { "sh" } else { shell };
    let mut argv = words_of(shell)?;
    if argv.first().is_none_or(|program| !matches!(find(program, None), ProgramWord::Executable(_))) {
        return Err(ProgramError::NoShell(shell.to_owned()));
    }
    argv.extend(["-c".to_owned(), line.to_owned()]);
    Ok(argv)
}

/// Adds the words after `--` to a program.
fn extend(argv: &mut Vec<String>, words: &[String], is_shell: bool) {
    match argv.last_mut().filter(|_| is_shell && !words.is_empty()) {
        Some(line) => *line = format!("{line} {}", quote(words)),
        None => argv.extend_from_slice(words),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ProgramWord {
    Executable(PathBuf),
    Directory,
    File,
    Nothing,
}

/// A program's file, valid until it is rebuilt.
fn file_of(program: &str, directory: Option<&Path>) -> Option<ProgramFile> {
    let ProgramWord::Executable(path) = find(program, directory) else { return None };
    ProgramFile::find(&std::path::absolute(path).ok()?)
}

/// Looks for a program as execvp(3) does.
fn find(program: &str, directory: Option<&Path>) -> ProgramWord {
    let look = |path: PathBuf| match std::fs::metadata(&path) {
        Ok(data) if data.is_file() && data.permissions().mode() & 0o111 != 0 => ProgramWord::Executable(path),
        Ok(data) if data.is_dir() => ProgramWord::Directory,
        Ok(_) => ProgramWord::File,
        Err(_) => ProgramWord::Nothing,
    };
    if program.contains('/') {
        return look(directory.map_or_else(|| PathBuf::from(program), |directory| directory.join(program)));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|place| look(place.join(program)));
    found.find(|found| matches!(found, ProgramWord::Executable(_))).unwrap_or(ProgramWord::Nothing)
}

/// Rejects arms that cannot be compared. A single program is only measured.
fn check(arms: &[Arm]) -> Result<(), ArmError> {
    match (Arm::check_all(arms), arms) {
        (Err(ArmError::Few), [arm]) if arm.program.is_some() && arm.settings.is_empty() => Ok(()),
        (checked, _) => checked,
    }
}

/// Numbers arms that have equal names: the same program twice is a comparison with itself.
fn distinguish(arms: &mut [Arm]) {
    let mut known = BTreeMap::new();
    for arm in arms.iter_mut().filter(|arm| arm.program.is_some()) {
        let count = known.entry(arm.name.clone()).or_insert(0);
        *count += 1;
        if *count > 1 {
            arm.name = format!("{} #{count}", arm.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    fn names(args: &ProgramArgs, matrix: &[&str], command: &[&str]) -> Result<Vec<String>, String> {
        let design = args.design(&[], &own(matrix), &own(command), None, &[]);
        Ok(design.map_err(|error| error.to_string())?.arms.into_iter().map(|arm| arm.name).collect())
    }

    fn words(list: &[&str]) -> ProgramArgs {
        ProgramArgs { arms: own(list), ..ProgramArgs::default() }
    }

    #[test]
    fn words_are_programs_or_settings() {
        assert_eq!(
            names(&words(&["/bin/sh -c true", "true"]), &[], &[]).unwrap(),
            ["/bin/sh -c true", "true"]
        );
        assert_eq!(
            names(&words(&["now", "governor=performance"]), &[], &["make"]).unwrap(),
            ["now", "governor=performance"]
        );
        assert_eq!(names(&words(&["true"; 3]), &[], &[]).unwrap(), ["true", "true #2", "true #3"]);
        assert_eq!(names(&ProgramArgs::default(), &[], &["./cmd", "a"]).unwrap(), ["./cmd a"]);
        for (list, want) in [
            (&["nosuchprogram", "true"][..], "neither a program nor a setting"),
            (&["FOO=1 true", "true"], "no knob 'FOO'"),
            (&["/etc/passwd", "true"], "not executable"),
            (&["true", "governor=performance"], "--matrix"),
            (&["true | true", "true"], "only a shell"),
        ] {
            let error = names(&words(list), &[], &[]).expect_err("refused");
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn programs_and_settings_make_one_design() {
        assert_eq!(
            names(&words(&["true", "false"]), &["governor=performance,now"], &["-x"]).unwrap(),
            ["true governor=performance", "false governor=performance", "true", "false"]
        );
        assert_eq!(names(&words(&[]), &["program=true,false"], &[]).unwrap(), ["true", "false"]);
        let many = ProgramArgs { parameter: own(&["n=1..200"]), ..words(&["true {n}"]) };
        assert!(names(&many, &[], &[]).expect_err("too many").contains("200 arms"));
    }

    #[test]
    fn parameters_are_filled_in() {
        let args = ProgramArgs { parameter: own(&["n=1..3"]), ..words(&["true {n}"]) };
        let design = args.design(&[], &[], &[], Some(&"echo {n}".to_owned()), &[]).unwrap();
        let second = design.arms[1].program.clone().unwrap();
        assert_eq!((design.arms[1].name.as_str(), second.argv), ("n=2", own(&["true", "2"])));
        assert_eq!(second.hooks.prepare.as_deref(), Some("echo 2"));
        assert_eq!(values_of("0..0.3:0.1").unwrap(), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(values_of("a,b").unwrap(), ["a", "b"]);
        assert_eq!(values_of(r",--a,x\,y").unwrap(), ["", "--a", "x,y"]);
        let flags = ProgramArgs { parameter: own(&["o=,-v"]), ..words(&["true {o}"]) };
        let argv = |args: &ProgramArgs| {
            args.design(&[], &[], &[], None, &[]).unwrap().arms[0].program.clone().unwrap().argv
        };
        assert_eq!((names(&flags, &[], &[]).unwrap(), argv(&flags)), (own(&["o=", "o=-v"]), own(&["true"])));
        let named = ProgramArgs { command_name: own(&["true-{n}"]), ..args.clone() };
        assert_eq!(names(&named, &[], &[]).unwrap(), ["true-1", "true-2", "true-3"]);
        let named = ProgramArgs { command_name: own(&["t"]), ..args };
        assert_eq!(names(&named, &[], &[]).unwrap(), ["t n=1", "t n=2", "t n=3"]);
        for bad in ["", "1..0", "1..x", "1..5:0", "0..1e9", ","] {
            assert_eq!(values_of(bad), None, "{bad}");
        }
        let unused = ProgramArgs { parameter: own(&["n=1..3"]), ..words(&["true"]) };
        assert!(names(&unused, &[], &[]).expect_err("unused").contains("no command has {n}"));
    }

    #[test]
    fn a_control_is_the_first_arm_again() {
        let args = ProgramArgs { aa: true, ..words(&["true", "false"]) };
        let design = args.design(&[], &[], &[], None, &[]).unwrap();
        assert_eq!(design.arms[2].name, "true again");
        assert!(design.arms[2].control && design.arms[2].program == design.arms[0].program);
        let alone = ProgramArgs { aa: true, ..ProgramArgs::default() };
        assert_eq!(names(&alone, &[], &["make"]).unwrap(), ["make", "make again"]);
    }

    #[test]
    fn a_shell_runs_on_request() {
        let args = ProgramArgs { shell: Some("bash -e".to_owned()), ..words(&["A=1 ./x | wc", "y"]) };
        let design = args.design(&[], &[], &own(&["a b"]), None, &[]).unwrap();
        let argv = design.arms[0].program.clone().unwrap().argv;
        assert_eq!(argv, own(&["bash", "-e", "-c", "A=1 ./x | wc 'a b'"]));
    }
}
