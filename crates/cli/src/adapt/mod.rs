//! Where the libraries meet: each file here puts one library's data into the shape that another asks for.

mod loading;
pub(crate) mod meaning;
pub(crate) mod samples;
pub(crate) mod series;
pub(crate) mod split;
