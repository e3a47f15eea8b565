"""Generated from proto/outbid/v1: the messages and services of Outbid. Do not edit."""
