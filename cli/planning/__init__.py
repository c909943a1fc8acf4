"""Commands that look ahead: what a plan costs, and which strategy suits it."""
