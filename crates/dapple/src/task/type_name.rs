//! The name of a task that was given none: the type that the user wrote, without the crate's own wrappers around it.

use std::any::type_name;

use super::or_else::OrElse;
use super::poll::ClosureFuture;

/// The type of a task's future, or of the closure or future in a wrapper of this crate.
pub(crate) fn name_of<F>() -> &'static str {
    let mut name = type_name::<F>();
    while let Some(inner) = first_argument(name, type_name::<ClosureFuture<()>>())
        .or_else(|| first_argument(name, type_name::<OrElse<(), fn()>>()))
    {
        name = inner;
    }
    name
}

/// The first type argument of `name`, if it is of the same generic type as `wrapper`. The form of type names is not
/// promised by the language: one that is not understood stays as it is.
fn first_argument<'a>(name: &'a str, wrapper: &str) -> Option<&'a str> {
    let (path, _) = wrapper.split_once('<')?;
    let arguments = name.strip_prefix(path)?.strip_prefix('<')?.strip_suffix('>')?;
    let mut depth = 0;
    let mut last = ' ';
    let end = arguments.char_indices().find(|&(_, char)| {
        match char {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if last == '-' => {} // the arrow of a function type
            '>' | ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        last = char;
        char == ',' && depth == 0
    });
    Some(end.map_or(arguments, |(at, _)| &arguments[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_not_shown() {
        type Arrow = fn(Option<(u8, u8)>) -> u8;
        assert_eq!(name_of::<u8>(), "u8");
        assert_eq!(name_of::<ClosureFuture<Arrow>>(), type_name::<Arrow>());
        assert_eq!(name_of::<OrElse<ClosureFuture<Arrow>, fn()>>(), type_name::<Arrow>());
        assert_eq!(name_of::<OrElse<Option<(u8, Arrow)>, fn()>>(), type_name::<Option<(u8, Arrow)>>());
        assert_eq!(name_of::<Option<ClosureFuture<u8>>>(), type_name::<Option<ClosureFuture<u8>>>());
    }
}
