//! The search for a batch size, replayed without a GPU: on recorded sweeps, on made-up devices, and on devices that
//! misbehave.

// A device that is not there: step times, activity and memory over batch size, with noise, drift and neighbours.
mod device;
// Recorded sweeps: is the chosen size the one that an exhaustive sweep would choose, and would simpler rules find it?
mod recorded;
// Made-up devices: what holds them back, and what disturbs them.
mod disturbed;
// Properties of any device.
mod properties;
