"""The paths of token."""

from fastapi import APIRouter

router = APIRouter()
