//! The macro that declares an event, and the trait of declared events.

use std::fmt;

use super::field::Layout;

/// An event that this library reads field by field. [`event!`] implements this from a list of
/// fields.
pub(crate) trait KernelEvent: Sized {
    /// The event's directory below events/.
    const SYSTEM: &'static str;
    const NAME: &'static str;
    /// The fields that the event's format file must have: for each, its names in different kernels.
    const FIELDS: &'static [&'static [&'static str]];
    /// The fields as a kernel prints them, for the test that walks the table.
    const EXAMPLE: &'static str;
    /// Locations of the fields in a binary record.
    type Places: Clone + fmt::Debug;

    /// Returns `None` for a layout that lacks a field; the event is then passed through by name.
    fn places(layout: Layout<'_>) -> Option<Self::Places>;

    fn decode(places: &Self::Places, record: &[u8]) -> Self;

    /// Parses the event from the text after its name. `None` if a field is missing.
    fn parse(text: &[u8]) -> Option<Self>;

    /// Prints the fields as the kernel does.
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The CPU that the event describes, if a field has it.
    fn about(&self) -> Option<u32> {
        None
    }
}

/// Declares an event: its struct and, from one list of fields, how it is decoded, parsed from text
/// and printed.
///
/// Fields are listed in the order in which the kernel prints them: `name: type as Kind = ["name in
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
            /// Parses the event with fields in the kernel's order, from `at` in a larger text. Also
            /// returns its end.
            #[inline(always)]
            pub(crate) fn in_order(bytes: &[u8], at: usize) -> Option<($type, usize)> {
                $(let ($field, at) = <$kind as $crate::events::field::Kind>::read_behind(bytes, at, $key)?;)+
                Some(($type { $($field),+ }, at))
            }

            /// Parses the event with fields in any order, from other kernels or printers.
            #[cold]
            fn by_key(text: &[u8]) -> Option<$type> {
                Some($type { $($field: <$kind as $crate::events::field::Kind>::find(text, $key)?),+ })
            }
        }

        // Nothing else needs the name of the struct of places.
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
                    // A damaged line of the other layout does not match this one.
                    $(if $crate::scan::value_of(text, $other.as_bytes()).is_some() {
                        return None;
                    })?
                    // Fields are usually in order; the search takes a pass over the text for each
                    // field.
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
