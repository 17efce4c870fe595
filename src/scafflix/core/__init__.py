"""What everything rests on: errors, points, random streams, digests, durable files, devices."""
