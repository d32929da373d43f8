//! client-go's informers over a fleet in trouble.
