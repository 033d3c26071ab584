//! The macro with which an event is declared, and what every declared event can do.

use std::fmt;

use super::field::Layout;

/// An event that this library reads field by field. [`event!`] implements this from a list of
/// fields.
pub(crate) trait KernelEvent: Sized {
    /// The directory below events/ that the event is in.
    const SYSTEM: &'static str;
    const NAME: &'static str;
    /// The fields that the event's format file must have: for each, its names in different kernels.
    const FIELDS: &'static [&'static [&'static str]];
    /// The fields as a kernel prints them, for the test that walks the table.
    const EXAMPLE: &'static str;
    /// Where the fields lie in a binary record.
    type Places: Clone + fmt::Debug;

    /// `None` for a layout that lacks a field; the event is then passed through by name.
    fn places(layout: Layout<'_>) -> Option<Self::Places>;

    fn decode(places: &Self::Places, record: &[u8]) -> Self;

    /// The event out of the text behind its name. `None` if a field is missing.
    fn parse(text: &[u8]) -> Option<Self>;

    /// Prints the fields as the kernel does.
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The CPU that the event is about, if a field says so.
    fn about(&self) -> Option<u32> {
        None
    }
}

/// Declares an event: its struct and, from one list of fields, how it is decoded, read from text
/// and printed.
///
/// The fields stand in the order in which the kernel prints them: `name: type as Kind = ["name in
/// the format file", "name in older kernels"], "text before the value";` `without` names a key of
/// the layout with more fields.
macro_rules! event {
    (
        $(#[$doc:meta])*
        $type:ident = $system:literal : $name:literal,
        example $example:literal,
        $(about $about:ident,)?
        $(without $other:literal,)?
        {
            $(
                $(#[$field_doc:meta])*
                $field:ident: $value:ty as $kind:ty = [$($binary:literal),+], $key:literal;
            )+
        }
        $(then $end:literal)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $type {
            $($(#[$field_doc])* pub $field: $value,)+
        }

        impl $type {
            /// The event in the kernel's order of fields, from `at` in a larger text; and where it
            /// ends.
            #[inline(always)]
            pub(crate) fn in_order(bytes: &[u8], at: usize) -> Option<($type, usize)> {
                $(let ($field, at) = <$kind as $crate::events::field::Kind>::read_behind(bytes, at, $key)?;)+
                Some(($type { $($field),+ }, at))
            }

            /// The event in any order of fields: other kernels, other printers.
            #[cold]
            fn by_key(text: &[u8]) -> Option<$type> {
                Some($type { $($field: <$kind as $crate::events::field::Kind>::find(text, $key)?),+ })
            }
        }

        // The struct of places has no name that anybody else needs.
        const _: () = {
            use $crate::events::{declare::KernelEvent, field::{Kind, Layout}};

            #[derive(Debug, Clone)]
            pub(crate) struct Places {
                $($field: <$kind as Kind>::Place,)+
            }

            impl KernelEvent for $type {
                const SYSTEM: &'static str = $system;
                const NAME: &'static str = $name;
                const FIELDS: &'static [&'static [&'static str]] =
                    &[$(if <$kind as Kind>::OPTIONAL { &[] } else { &[$($binary),+] }),+];
                const EXAMPLE: &'static str = $example;
                type Places = Places;

                fn places(layout: Layout<'_>) -> Option<Places> {
                    Some(Places { $($field: <$kind as Kind>::place(layout, &[$($binary),+])?),+ })
                }

                #[inline(always)]
                fn decode(places: &Places, record: &[u8]) -> $type {
                    $type { $($field: <$kind as Kind>::decode(&places.$field, record)),+ }
                }

                fn parse(text: &[u8]) -> Option<$type> {
                    // Another layout of the same event, damaged, is not this one.
                    $(if $crate::scan::value_of(text, $other.as_bytes()).is_some() {
                        return None;
                    })?
                    // Nearly always in order; the search costs a pass over the text for each field.
                    match $type::in_order(text, 0) {
                        Some((event, _)) => Some(event),
                        None => $type::by_key(text),
                    }
                }

                fn print(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    $(<$kind as Kind>::print_behind(self.$field, $key, f)?;)+
                    $(f.write_str($end)?;)?
                    Ok(())
                }

                $(
                    #[inline(always)]
                    fn about(&self) -> Option<u32> {
                        Some(self.$about)
                    }
                )?
            }
        };
    };
}

pub(crate) use event;
