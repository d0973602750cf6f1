"""What is deployed on a host: read there, compared with what is wished, exchanged, gone back to."""
