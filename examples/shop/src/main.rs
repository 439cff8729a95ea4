//! `weft-shop DIRECTORY [ADDRESS]` runs the shop until it is interrupted.

use std::path::PathBuf;

use tokio::net::TcpListener;
use weft_shop::http;
use weft_shop::shop::Shop;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("give the directory: weft-shop DIRECTORY [ADDRESS]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let shop = Shop::open(&PathBuf::from(directory))?;
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    let interrupted = async {
        // If the signal cannot be awaited, the shop closes at once.
        let _ = tokio::signal::ctrl_c().await;
    };
    http::serve(listener, shop, interrupted).await
}
