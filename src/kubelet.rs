//! The server side of the kubelet's contract: two sockets, registration and the DRA plugin service.
//!
//! In this order: bind the service socket and serve it, then registration (its socket is what the kubelet looks
//! for). Stopped the other way round: calls first, then registration, whose socket's removal makes the kubelet
//! close its connection, then the service socket.

pub mod health;
mod layers;
pub mod plugin;
pub mod registration;
mod server;
pub mod socket;
