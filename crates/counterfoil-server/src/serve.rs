//! Accepting connections, and letting go of them.
//!
//! Bounded in every direction: how many connections, how long a head may take, how large it may be. On shutdown nothing new is accepted, what is
//! under way is finished, idle connections are closed.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::app::Limits;
use crate::router::Api;

/// After an error of `accept` (too many open files, say) it is tried again, not at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Serves until `stop` is ready, then finishes what is under way, for `grace` at most; `stopping` is told when nothing more is accepted. True:
/// all of it was finished.
pub async fn serve(
    listener: TcpListener,
    api: Arc<Api>,
    limits: &Limits,
    stop: impl Future<Output = ()>,
    stopping: watch::Sender<bool>,
    grace: Duration,
) -> bool {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections_max));
    // At most 100 header lines: its own bound, which must not be set, or it takes memory for so many from the heap for every request.
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_within).max_buf_size(limits.head_bytes_max).keep_alive(true);
    tokio::pin!(stop);
    loop {
        let place = tokio::select! {
            () = &mut stop => break,
            place = places.clone().acquire_owned() => place.expect("never closed"),
        };
        let stream = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if !of_one_connection(&error) {
                        tracing::error!(%error, "no connection can be accepted");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                    continue;
                }
            },
        };
        // Small answers must not wait for more; a socket that refuses is slower, not wrong.
        drop(stream.set_nodelay(true));
        let api = api.clone();
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request.map(Body::new)).await) }
        });
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    tokio::time::timeout(grace, graceful.shutdown()).await.is_ok()
}

/// An error of the connection that was about to be accepted, not of the listener.
fn of_one_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}
