//! HTTP, for those who look after the server: `/metrics` and `/health`.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use weft_inspect::openmetrics::CONTENT_TYPE;

use crate::metrics;
use crate::server::Server;

/// Serves until the task is aborted.
pub async fn serve(server: Arc<Server>, listener: TcpListener) {
    let for_health = Arc::clone(&server);
    let pages = Router::new()
        .route("/metrics", get(move || show_metrics(Arc::clone(&server))))
        .route("/health", get(move || show_health(Arc::clone(&for_health))));
    // It ends with the task.
    let _ = axum::serve(listener, pages).await;
}

async fn show_metrics(server: Arc<Server>) -> impl IntoResponse {
    // Counting the memory takes a while if there are many tables.
    let (status, text) = match tokio::task::spawn_blocking(move || metrics::render(&server)).await {
        Ok(Ok(text)) => (StatusCode::OK, text),
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    };
    (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], text)
}

async fn show_health(server: Arc<Server>) -> impl IntoResponse {
    match tokio::task::spawn_blocking(move || server.check_health()).await {
        Ok(Ok(())) => (StatusCode::OK, "ok\n".to_owned()),
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
