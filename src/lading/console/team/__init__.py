"""The console for several people: logins, sessions, and a line for each change."""
