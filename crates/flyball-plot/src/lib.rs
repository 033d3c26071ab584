//! Numbers into SVG, PNG and self-contained HTML.
