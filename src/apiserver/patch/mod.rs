//! How a patch makes a new object of the present one.
//!
//! Pure: the present object, the patch and the types go in, the new object or a status's words come out.
