//! One connection to Redis, shared by all who ask at once. It ends for good when anything goes wrong; nothing is ever sent twice here.

use std::pin::Pin;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, ProtocolVersion, PushInfo, RedisError, ServerError, Value};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::address::Address;
use super::rewrite::File;

/// What Redis did not answer to, it may have done all the same.
#[derive(Debug)]
pub struct Silence(pub String);

pub struct Line {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    /// The file of the Redis behind it, once that is known.
    pub file: OnceLock<File>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Line {
    /// A line, and what is ready when it has ended. With `heard` it is one to listen on.
    pub async fn open(
        address: &Address,
        heard: Option<UnboundedSender<PushInfo>>,
        within: Duration,
    ) -> Result<(Self, JoinHandle<()>), String> {
        let opening = async {
            let protocol = if heard.is_some() { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
            // Whoever asks sets the time limit.
            let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
            if let Some(heard) = heard {
                config = config.set_push_sender(heard);
            }
            let stream = dial(address).await?;
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&address.login(protocol), stream, config).await.map_err(|error| explain(&error))?;
            let ended = tokio::spawn(driver);
            Ok((Self { connection, driver: ended.abort_handle(), file: OnceLock::new() }, ended))
        };
        timeout(within, opening).await.map_err(|_| format!("no connection within {within:?}"))?
    }

    /// Redis's answer, which may be a refusal.
    pub async fn ask(&self, command: &Cmd, by: Instant) -> Result<Result<Value, ServerError>, Silence> {
        Ok(said(answer(self.connection.clone().send_packed_command(command), by).await?))
    }

    /// The answers to `commands`, in one round trip. The first refusal stands for all.
    pub async fn ask_all(&self, commands: &Pipeline, by: Instant) -> Result<Result<Vec<Value>, ServerError>, Silence> {
        Ok(self.ask_each(commands, by).await?.into_iter().collect())
    }

    /// The answer to each of `commands`, in one round trip.
    pub async fn ask_each(&self, commands: &Pipeline, by: Instant) -> Result<Vec<Result<Value, ServerError>>, Silence> {
        let answers = answer(self.connection.clone().send_packed_commands(commands, 0, commands.len()), by).await?;
        Ok(answers.into_iter().map(said).collect())
    }
}

/// A refusal apart from other answers.
pub fn said(answer: Value) -> Result<Value, ServerError> {
    match answer {
        Value::ServerError(error) => Err(error),
        value => Ok(value),
    }
}

async fn answer<T>(asking: impl Future<Output = Result<T, RedisError>>, by: Instant) -> Result<T, Silence> {
    match timeout_at(by, asking).await {
        Ok(answer) => answer.map_err(|error| Silence(explain(&error))),
        Err(_) => Err(Silence("no answer in time".into())),
    }
}

fn explain(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::AuthenticationFailed => "Redis refused the login: user or password is wrong".into(),
        _ => error.to_string(),
    }
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

async fn dial(address: &Address) -> Result<Pin<Box<dyn Stream>>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    if !address.tls {
        return Ok(Box::pin(stream));
    }
    let name = ServerName::try_from(address.host.clone()).map_err(|error| format!("{}: {error}", address.host))?;
    let stream = TlsConnector::from(tls()?).connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
    Ok(Box::pin(stream))
}

/// rustls with ring, and the certificates this machine trusts.
fn tls() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: LazyLock<Result<Arc<ClientConfig>, String>> = LazyLock::new(|| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let config = builder.with_platform_verifier().map_err(|error| format!("no trusted certificates were found: {error}"))?;
        Ok(Arc::new(config.with_no_client_auth()))
    });
    CONFIG.clone()
}
