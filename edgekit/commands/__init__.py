"""What each command does, apart from its command line: one file a command."""
