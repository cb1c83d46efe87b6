"""Models from strangers are checked and built in a child process, which may crash; this one does not."""
