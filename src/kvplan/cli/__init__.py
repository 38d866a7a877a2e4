"""The command line: words in, exit code out. One thin module a command."""
