//! Members that join and leave under watchers.
