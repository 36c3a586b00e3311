//! A daemon's life: listen for operators, start the data plane, serve, stop clean.
//!
//! Runs on the thread it is called on, which becomes the control thread.

use super::service::ServiceManager;
use super::signals::Signals;
use super::stray_signals;
use crate::http_address::HttpAddress;
use crate::{dataplane, open_files};
use cinnabar_config::messages::pulse::Pulse;
use cinnabar_config::messages::samplers::SampleStreams;
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, Commands, DataPlaneHandle, Message, StartConfig, StartError,
    StartErrorKind, StopReport, Subject,
};
use cinnabar_config::settings::StartTls;
use cinnabar_config::{Config, ControlConfig, HttpTls};
use cinnabar_control::access::{Token, TokenError};
use cinnabar_control::reload::ReloadListener;
use cinnabar_control::reload::report::{ReloadInput, ReloadReport};
use cinnabar_control::server::{AddressListener, Router, serve};
use cinnabar_control::socket::{ControlSocket, SocketError};
use cinnabar_control::tls::TlsListener;
use cinnabar_control::{Control, Phase, api, http, observer};
use cinnabar_frontend::tls::{Files, Terminator, Tls, TlsError};
use sd_notify::NotifyState;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Added to the deadline of a stop before the control plane gives up on the data plane.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Until a stop is sent again for which there was no room in the queue.
const STOP_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Threads that wait for files at most; other work waits for one of them. Of a healthy host there is work for few:
/// files of commands (8 at a time), charts (2), the tables of sockets (2), certificates and history; tokens are read
/// in no time. Of storage that hangs each request for a change over HTTP keeps one for its token, and threads stay:
/// this bounds them.
const FILE_THREADS_MAX: usize = 64;
/// Threads that wait for files stay, once there is one.
const FILE_THREADS_STAY: Duration = Duration::from_hours(24 * 365);
/// Time for those who record to take the rest, when all else is done.
const RECORDINGS_GRACE: Duration = Duration::from_secs(2);
/// Time for clients that use TLS to take the last replies.
const TLS_GRACE: Duration = Duration::from_secs(3);
/// A certificate and its key that are being replaced do not fit for a moment: time for that to pass.
const TLS_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often they are read then.
const TLS_WAIT_STEP: Duration = Duration::from_millis(250);
/// Longest detach of a volume, beyond the wait for locks.
const CHANGE_WAIT_MAX: Duration = Duration::from_mins(2);

/// How a daemon ended, if not well.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The control socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The port of metrics, or of daemons on other hosts.
    #[error("can't listen at {address}: {source}")]
    Http {
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The token for changes over HTTP.
    #[error("token_file {}: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TokenError,
    },
    /// The certificates of `[tls]`.
    #[error("[tls]: {0}")]
    Tls(#[from] TlsError),
    /// HTTP must not go on without what was asked for.
    #[error("http_tls in [control] is set, and there is no [tls]")]
    NoTls,
    /// The data plane.
    #[error(transparent)]
    Data(#[from] StartError),
    /// It stopped, but not as it should have.
    #[error("stopped, but {0}: the next start is as after a crash")]
    Unclean(&'static str),
    /// A second signal came while stopping.
    #[error("ended at once by a second signal: the next start is as after a crash")]
    Impatient,
    /// Threads, signals.
    #[error("can't set up the control thread: {0}")]
    Setup(#[from] std::io::Error),
}

impl RunError {
    /// The process's exit code: 2 if the configuration has to change, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            // The folder is missing, the daemon may not use the port, the token is open to others.
            Self::Socket(_) | Self::Http { .. } | Self::Token { .. } | Self::NoTls => 2,
            // Files that do not fit, or can't be read, may do when the service manager tries again.
            Self::Tls(error) => 2 - u8::from(error.may_pass()),
            Self::Data(error) => error.kind.exit_code(),
            Self::Unclean(_) | Self::Impatient | Self::Setup(_) => 1,
        }
    }

    /// A line that helps.
    pub fn hint(&self) -> String {
        match self {
            Self::Socket(error) => error.hint().to_owned(),
            Self::Http { .. } => "set another http or peers in [control]".to_owned(),
            Self::Token { source, .. } => source.hint().to_owned(),
            Self::Tls(error) => error.hint().to_owned(),
            Self::NoTls => "add [tls] with certificate and key".to_owned(),
            Self::Data(error) => error.hint.clone(),
            Self::Unclean(_) => "no data are lost; the log says what took so long".to_owned(),
            Self::Impatient => "no data are lost; give it more time next time".to_owned(),
            Self::Setup(_) => "check the limits of the process: ulimit -a".to_owned(),
        }
    }
}

/// Runs a daemon until a signal ends it. `on_ready` is called once, when every volume answers; what it
/// gives is dropped before the daemon stops.
///
/// # Errors
/// [`RunError`] if it can't start, can't go on, or can't stop clean.
pub fn run<T>(config: &Config, on_ready: impl FnOnce() -> T) -> Result<(), RunError> {
    open_files::raise();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(FILE_THREADS_STAY)
        .max_blocking_threads(FILE_THREADS_MAX)
        .build()?;
    // Where the system gives no thread for files, those that there are do its work; without any it would be a panic.
    drop(runtime.spawn_blocking(|| ()));
    // Before anything that takes time: they would end the process. One that is to end it may, still.
    let hangup = runtime.block_on(async {
        stray_signals::ignore()?;
        signal(SignalKind::hangup())
    })?;
    // First of all else: a second daemon by mistake is told so at once.
    let mut socket = {
        let ControlConfig { socket, socket_group, .. } = &config.control;
        ControlSocket::bind(socket, socket_group.as_deref())?
    };
    let (api, peers) = (config.control.api.as_ref(), config.control.peers.as_ref());
    check_tokens(&config.control)?;
    let tls = load_tls(config)?;
    let listen =
        |address| HttpAddress::bind(address).map_err(|source| RunError::Http { address, source });
    let http = config.control.http.map(listen).transpose()?;
    let at = peers.map(|peers| listen(peers.address)).transpose()?;
    let result = runtime.block_on(async {
        let control = Control::new(
            config.base.clone(),
            config.control.socket.clone(),
            config.lock_wait_max + CHANGE_WAIT_MAX,
        );
        let life_max = control.change_wait_max + CHANGE_WAIT_MAX;
        if let Some(listener) = socket.take_listener() {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            tokio::spawn(serve(listener, api::router(Arc::clone(&control)), life_max));
        }
        if let Some(address) = http {
            let tls = match &config.control.http_tls {
                Some(rule) => {
                    Some((rule.clone(), Arc::clone(tls.as_ref().ok_or(RunError::NoTls)?)))
                }
                None => None,
            };
            let routes = http::router(&control, &config.control.allowed_hosts, api);
            tokio::spawn(serve_http(address, routes, tls, life_max));
        }
        if let (Some(address), Some(peers)) = (at, peers) {
            tokio::spawn(serve_peers(address, http::peers(&control, &peers.token_file), life_max));
        }
        if let Some(tls) = &tls {
            control.set_tls(Arc::clone(tls));
        }
        let terminator = match &tls {
            Some(tls) if tls.knows_clients() => Some(start_terminator(config, tls)?),
            _ => None,
        };
        let result = live(
            config,
            &control,
            terminator.clone().map(|tls| tls as Arc<dyn StartTls>),
            hangup,
            on_ready,
        )
        .await;
        // After another end than an ordinary one nothing is waited for.
        let ends_tls = terminator.filter(|_| result.is_ok());
        if ends_tls.is_some_and(|terminator| !terminator.finish(TLS_GRACE)) {
            tracing::warn!("some TLS clients do not take the last replies");
        }
        result
    });
    // Connections and a start that was given up are not waited for.
    runtime.shutdown_background();
    result
}

/// Token files are read again for each change; here for the operator, who sees what is wrong with them.
fn check_tokens(control: &ControlConfig) -> Result<(), RunError> {
    let api = control.api.as_ref().and_then(|api| api.token_file.as_ref());
    let peers = control.peers.as_ref().map(|peers| &peers.token_file);
    for path in [api, peers].into_iter().flatten() {
        Token::read(path).map_err(|source| RunError::Token { path: path.clone(), source })?;
    }
    Ok(())
}

/// The certificates, if the configuration has some.
fn load_tls(config: &Config) -> Result<Option<Arc<Tls>>, RunError> {
    let Some(tls) = &config.tls else { return Ok(None) };
    let files = Files {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        client_ca: tls.client_ca.clone(),
    };
    let begun = Instant::now();
    loop {
        match Tls::load(files.clone()) {
            Ok(tls) => return Ok(Some(Arc::new(tls))),
            Err(error) if error.may_pass() && begun.elapsed() < TLS_WAIT_MAX => {
                tracing::debug!("{error}: it is tried again");
                std::thread::sleep(TLS_WAIT_STEP);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Serves HTTP as soon as its address is free, over TLS if that is asked for.
async fn serve_http(
    address: HttpAddress,
    routes: Router,
    tls: Option<(HttpTls, Arc<Tls>)>,
    life_max: Duration,
) {
    let (at, listener) = address.listener().await;
    if let Some((rule, tls)) = tls {
        tracing::info!("metrics at https://{at}/metrics");
        serve(TlsListener::new(listener, tls, &rule), routes, life_max).await;
    } else {
        tracing::info!("metrics at http://{at}/metrics");
        serve(AddressListener::new(listener), routes, life_max).await;
    }
}

/// Serves daemons on other hosts as soon as their address is free.
async fn serve_peers(address: HttpAddress, routes: Router, life_max: Duration) {
    let (at, listener) = address.listener().await;
    tracing::info!("daemons on other hosts ask at {at}");
    serve(AddressListener::new(listener), routes, life_max).await;
}

fn start_terminator(config: &Config, tls: &Arc<Tls>) -> Result<Arc<Terminator>, RunError> {
    let threads = config.tls.as_ref().map_or(1, |tls| tls.threads);
    Ok(Terminator::start(tls, threads)?)
}

async fn live<T>(
    config: &Config,
    control: &Arc<Control>,
    tls: Option<Arc<dyn StartTls>>,
    hangup: Signal,
    on_ready: impl FnOnce() -> T,
) -> Result<(), RunError> {
    let mut signals = Signals::with_hangup(hangup)?;
    let hangup = if reloads_on_hangup(config) { signals.take_hangup() } else { None };
    control.set_config(config);
    let manager = ServiceManager::start()?;
    control.set_reload_listener(Box::new(StatusLine(manager.clone())));
    let cancel = Arc::new(AtomicBool::new(false));
    let mut starting = start(config, tls, Arc::clone(&cancel))?;
    manager.say(&[NotifyState::Status("opening cache and volumes")]);
    let mut asked_to_stop = false;
    let started = loop {
        tokio::select! {
            started = &mut starting => break started,
            () = signals.next() => {
                if asked_to_stop {
                    return Err(RunError::Impatient);
                }
                tracing::info!("asked to stop while starting");
                asked_to_stop = true;
                cancel.store(true, Ordering::Relaxed);
            }
        }
    };
    let DataPlaneHandle { commands, mut ended, streams, mut pulses } = match started {
        Ok(Ok(handle)) => handle,
        Ok(Err(error)) if error.kind == StartErrorKind::Cancelled => return Ok(()),
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(ended_unexpectedly().into()),
    };
    manage_shares(config, control, streams, &commands)?;
    if !asked_to_stop {
        control.enter(Phase::Serving(commands.clone()));
        tracing::info!(volumes = config.volumes.len(), "ready");
        manager.say(&[NotifyState::Ready, NotifyState::Status("serving")]);
        pulses.push(own_pulse());
        manager.watch(pulses, Arc::clone(control));
        let at_work = on_ready();
        if let Some(hangup) = hangup {
            tokio::spawn(reload_on(hangup, Arc::clone(control)));
        }
        let folder = &config.cache.state_dir;
        let observes = tokio::spawn(observer::observe(Arc::clone(control), folder.clone()));
        tokio::select! {
            () = signals.next() => {}
            result = &mut ended => return Err(failure(result).into()),
        }
        drop(at_work);
        observes.abort();
        observer::finish(control, folder).await;
    }
    let stop_wait_max = control.stop_wait_max().unwrap_or(config.control.stop_wait_max);
    control.enter(Phase::Stopping);
    manager.look_away();
    manager.say(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    let stopped = tokio::select! {
        result = stop(&commands, &mut ended, stop_wait_max) => {
            control.recordings_sent(RECORDINGS_GRACE).await;
            result
        }
        () = signals.next() => return Err(RunError::Impatient),
    };
    manager.finish();
    stopped
}

/// Starts the manager of shares, if there is to be one.
fn manage_shares(
    config: &Config,
    control: &Arc<Control>,
    streams: Option<SampleStreams>,
    commands: &Commands,
) -> Result<(), RunError> {
    let (Some(shares), Some(streams)) = (config.manager, streams) else { return Ok(()) };
    let listener = Arc::clone(&control.observer) as _;
    let handle = cinnabar_manager::start(shares, streams, commands.clone(), listener)?;
    control.set_manager(handle);
    let allocator = shares.rules.allocator.name();
    tracing::info!(allocator, interval_s = shares.every.as_secs(), "shares are managed");
    Ok(())
}

/// Whether SIGHUP asks for the configuration to be read again. Without a file there is nothing to read,
/// and on a terminal it says that this closes.
fn reloads_on_hangup(config: &Config) -> bool {
    let on_terminal = std::io::stdin().is_terminal() || std::io::stderr().is_terminal();
    config.path.is_some() && !on_terminal
}

/// Reads the configuration again at each SIGHUP; those that come meanwhile are one. The log has what
/// came of it, and the service manager how the last one went.
async fn reload_on(mut hangup: Signal, control: Arc<Control>) {
    while hangup.recv().await.is_some() {
        let _told = control.reload(ReloadInput::default()).await;
    }
}

/// Tells the service manager how the last reload went.
#[derive(Debug)]
struct StatusLine(ServiceManager);

impl ReloadListener for StatusLine {
    fn reloaded(&self, result: Result<&ReloadReport, &CommandError>) {
        let status = match result {
            Ok(report) => match report.failures().count() {
                0 => "serving".to_owned(),
                1 => "serving; a change of the configuration has failed, see the log".to_owned(),
                failed => format!(
                    "serving; {failed} changes of the configuration have failed, see the log"
                ),
            },
            Err(error) => format!("serving; the configuration was not read again: {error}"),
        };
        self.0.say(&[NotifyState::Status(&status)]);
    }
}

/// Starts the data plane on a thread of its own, for it waits for locks.
fn start(
    config: &Config,
    tls: Option<Arc<dyn StartTls>>,
    cancel: Arc<AtomicBool>,
) -> Result<oneshot::Receiver<Result<DataPlaneHandle, StartError>>, std::io::Error> {
    let settings = StartConfig {
        cache: config.cache.clone(),
        volumes: config.volumes.clone(),
        manager: config.manager,
        qos_groups: config.qos_groups.clone(),
        lock_wait_max: config.lock_wait_max,
        tls,
        cancel,
    };
    let (report, started) = oneshot::channel();
    std::thread::Builder::new().name("start".into()).spawn(move || {
        // If nobody waits any more the handle is dropped, and with it the data plane.
        let _nobody_waits = report.send(dataplane::start(settings));
    })?;
    Ok(started)
}

async fn stop(
    commands: &Commands,
    ended: &mut oneshot::Receiver<Result<(), StartError>>,
    deadline: Duration,
) -> Result<(), RunError> {
    let patience = deadline + STOP_GRACE;
    let begun = tokio::time::Instant::now();
    let answered = loop {
        let (answer, answered) = oneshot::channel();
        match commands.send(Message::Stop { deadline, answer }) {
            Ok(()) => break answered,
            // Others are before it in the queue.
            Err(error) if error.kind == CommandErrorKind::Limit => {}
            Err(_) => return Err(failure(ended.await).into()),
        }
        if begun.elapsed() > patience {
            return Err(RunError::Unclean("the data thread does not answer"));
        }
        tokio::time::sleep(STOP_AGAIN_AFTER).await;
    };
    let report = match tokio::time::timeout(patience, answered).await {
        Ok(Ok(Ok(report))) => report,
        Ok(Ok(Err(error))) => {
            tracing::error!("{error}");
            return Err(RunError::Unclean("the cache could not be closed"));
        }
        Ok(Err(_)) => return Err(failure(ended.await).into()),
        Err(_) => return Err(RunError::Unclean("the data thread does not answer")),
    };
    let StopReport { clean, kept_blocks, cut_off } = report;
    if cut_off > 0 {
        tracing::warn!("{cut_off} requests were cut off at the deadline of {deadline:?}");
    }
    // The thread is about to end; its files are unlocked when it has.
    match tokio::time::timeout(STOP_GRACE, ended).await {
        Ok(Ok(Ok(()))) => {}
        Ok(result) => return Err(failure(result).into()),
        Err(_) => return Err(RunError::Unclean("the data thread does not end")),
    }
    if !clean {
        return Err(RunError::Unclean("the cache could not be marked clean"));
    }
    tracing::debug!("stopped clean, {kept_blocks} blocks kept");
    Ok(())
}

/// What the end of the data thread means when nobody asked for it.
fn failure(ended: Result<Result<(), StartError>, oneshot::error::RecvError>) -> StartError {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) | Err(_) => ended_unexpectedly(),
    }
}

fn ended_unexpectedly() -> StartError {
    StartError::new(
        StartErrorKind::Io,
        Subject::Daemon,
        "the data thread ended unexpectedly",
        "the log says more; please report it",
    )
}

/// Of the control thread, which calls this.
fn own_pulse() -> Pulse {
    let runtime = tokio::runtime::Handle::current();
    Pulse::new("control", move |beat| {
        runtime.spawn(async move { beat.answer() });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_config::messages::{MESSAGES_MAX, Waker, channel};

    #[derive(Debug)]
    struct Nobody;

    impl Waker for Nobody {
        fn wake(&self) {}
    }

    /// With a full queue the stop was taken for one of a data thread that is gone, and waited for its end
    /// without a bound.
    #[tokio::test]
    async fn a_stop_waits_for_room_in_the_queue() {
        let (commands, queue) = channel(Arc::new(Nobody));
        for _ in 0..MESSAGES_MAX {
            let (answer, _left) = oneshot::channel();
            commands.send(Message::Status(answer)).expect("there is room");
        }
        let (end, mut ended) = oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            for message in &queue {
                if let Message::Stop { answer, .. } = message {
                    let report = StopReport { clean: true, ..StopReport::default() };
                    let _answered = answer.send(Ok(report));
                    break;
                }
            }
            let _ended = end.send(Ok(()));
        });
        let stopped = stop(&commands, &mut ended, Duration::from_secs(5));
        let stopped = tokio::time::timeout(Duration::from_secs(20), stopped).await;
        assert!(stopped.is_ok_and(|stopped| stopped.is_ok()), "it stops");
    }
}
