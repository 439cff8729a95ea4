//! A client's socket, which can move from the runtime of one thread to that of another.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as DetachedUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A client's socket.
#[derive(Debug)]
pub enum Socket {
    /// TCP, watched by a runtime.
    Tcp(TcpStream),
    /// A Unix socket, watched by a runtime.
    Unix(UnixStream),
    /// TCP, watched by no runtime.
    DetachedTcp(std::net::TcpStream),
    /// A Unix socket, watched by no runtime.
    DetachedUnix(DetachedUnixStream),
    /// A socket that was lost by a failed change.
    Lost,
}

impl Socket {
    /// Has the current runtime watch the socket no more.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn detach(&mut self) -> io::Result<()> {
        *self = match std::mem::replace(self, Socket::Lost) {
            Socket::Tcp(stream) => Socket::DetachedTcp(stream.into_std()?),
            Socket::Unix(stream) => Socket::DetachedUnix(stream.into_std()?),
            detached => detached,
        };
        Ok(())
    }

    /// Has the current runtime watch a detached socket.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn attach(&mut self) -> io::Result<()> {
        *self = match std::mem::replace(self, Socket::Lost) {
            Socket::DetachedTcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            Socket::DetachedUnix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
            attached => attached,
        };
        Ok(())
    }

    /// Takes what has arrived at a detached socket. Returns how many bytes; 0 if the other end sends no more.
    ///
    /// # Errors
    /// Nothing has arrived, or the socket is broken.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.descriptor()?, buffer, RecvFlags::DONTWAIT)?.0)
    }

    /// Sends bytes by a detached socket, as many as it takes, and returns how many.
    ///
    /// # Errors
    /// It takes none, or is broken.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.descriptor()?, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    /// Returns the file descriptor of a detached socket.
    ///
    /// # Errors
    /// It is not detached.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Socket::DetachedTcp(stream) => Ok(stream.as_fd()),
            Socket::DetachedUnix(stream) => Ok(stream.as_fd()),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }
}

/// Calls a method of the stream that a runtime watches.
macro_rules! poll {
    ($socket:ident.$method:ident($($argument:expr),*)) => {
        match $socket.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Socket::Unix(stream) => Pin::new(stream).$method($($argument),*),
            _ => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        }
    };
}

/// The stream of a connection.
#[derive(Debug)]
pub enum Stream {
    /// A socket.
    Plain(Socket),
    /// TLS over a socket.
    Encrypted(Box<TlsStream<Socket>>),
}

impl Stream {
    /// Returns the socket.
    pub fn socket(&mut self) -> &mut Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Encrypted(stream) => stream.get_mut().0,
        }
    }
}

/// Calls a method of the stream, encrypted or not.
macro_rules! poll_either {
    ($stream:ident.$method:ident($($argument:expr),*)) => {
        match $stream.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).$method($($argument),*),
            Stream::Encrypted(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

/// Reads and writes by a macro that calls a method of what is inside.
macro_rules! read_and_write {
    ($stream:ty, $poll:ident) => {
        impl AsyncRead for $stream {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                $poll!(self.poll_read(context, buffer))
            }
        }

        impl AsyncWrite for $stream {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                $poll!(self.poll_write(context, bytes))
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                $poll!(self.poll_flush(context))
            }

            fn poll_shutdown(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                $poll!(self.poll_shutdown(context))
            }
        }
    };
}

read_and_write!(Socket, poll);
read_and_write!(Stream, poll_either);
