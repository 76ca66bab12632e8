"""The console: a web page on this machine that shows what a broker or a cluster holds, in a process of its own."""
