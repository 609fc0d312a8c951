"""What requests and responses look like: their types, bodies, errors, and the OpenAPI document."""
