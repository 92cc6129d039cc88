//! The loader through its public API: order, completeness, errors, resume, shutdown. Shards and damage are made here.

#[path = "loader/made.rs"]
mod made;
#[path = "loader/order.rs"]
mod order;
#[path = "loader/given.rs"]
mod given;
#[path = "loader/batch_sizes.rs"]
mod batch_sizes;
#[path = "loader/damage.rs"]
mod damage;
#[path = "loader/columns.rs"]
mod columns;
#[path = "loader/rows.rs"]
mod rows;
#[path = "loader/streams.rs"]
mod streams;
#[path = "loader/threads.rs"]
mod threads;
#[path = "loader/descriptors.rs"]
mod descriptors;
#[path = "loader/bottleneck.rs"]
mod bottleneck;
