"""`deploy status`: how what is deployed is doing."""
