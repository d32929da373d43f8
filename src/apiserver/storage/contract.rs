//! What every storage must do.
