"""What is run inside a sandbox by the tests beside it: each module prints what it saw as JSON."""
