# A client of the toy that shares no line with it: Perl, a socket and the frames as commands.py describes them.
# Usage: perl client.pl HOST:PORT TOPIC; prints what it read back, a line for each message.
use strict;
use warnings;
use IO::Socket::INET;
use JSON::PP;

my ($address, $topic) = @ARGV;
my $socket = IO::Socket::INET->new(PeerAddr => $address, Timeout => 10) or die "connect: $@";
local $SIG{ALRM} = sub { die "no answer within 20 s" };
alarm 20;

sub receive {
    my ($size) = @_;
    my $data = "";
    while (length $data < $size) {
        my $got = sysread($socket, $data, $size - length $data, length $data);
        die "the server closed" unless $got;
    }
    return $data;
}

sub ask {
    my ($facts, $messages) = @_;
    my $json = encode_json($facts);
    syswrite($socket, pack("VV", length $json, length $messages) . $json . $messages) or die "send: $!";
    my ($facts_bytes, $messages_bytes) = unpack("VV", receive(8));
    my $answer = decode_json(receive($facts_bytes));
    die $answer->{error} if exists $answer->{error};
    return ($answer, receive($messages_bytes));
}

my %place = (topic => $topic, partition => 0);
ask({command => "publish", %place, create => 1}, "");
# headers before the payload: a name, kind 10 (uint16), its value
my $body = pack("v C/a* C v/a*", 1, "gate", 10, pack("v", 513)) . "from Perl";
ask({command => "publish", %place}, pack("V/a*", $body));
my (undef, $stored) = ask({command => "read", %place, offset => 0, count => 10}, "");
while (length $stored) {
    my ($size, $offset) = unpack("V q<", $stored);
    my ($count, $name, $kind, $value, $payload) = unpack("v C/a C v/a a*", substr($stored, 24, $size));
    print join(" ", $offset, $count, $name, $kind, unpack("v", $value), $payload), "\n";
    $stored = substr($stored, 24 + $size);
}
