"""Words for people, and from them: safe to show, without secrets, as tables, as times, as command lines."""
